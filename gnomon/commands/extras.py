"""The extras that commands need."""

from gnomon.base.errors import GnomonError


class MissingExtra(GnomonError):
    """A command needs a package that is not installed."""

    @classmethod
    def of(cls, command: str, package: str | None, extra: str) -> "MissingExtra":
        """The error with the extra to install."""
        return cls(
            f"{command} needs the package {package}, which is not installed: pip install 'gnomon-index[{extra}]'"
        )
