"""Exit codes, and the error of a missing extra."""

from gnomon.base.errors import GnomonError

FOUND, NOT_FOUND, WRONG_USAGE, FAILED, UNCHECKED, INTERRUPTED = 0, 1, 2, 3, 4, 130


class MissingExtra(GnomonError):
    """A command needs a package that is not installed."""

    @classmethod
    def of(cls, command: str, package: str | None, extra: str) -> "MissingExtra":
        """The error with the extra to install."""
        return cls(
            f"{command} needs the package {package}, which is not installed: pip install 'gnomon-index[{extra}]'"
        )
