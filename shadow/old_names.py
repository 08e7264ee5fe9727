"""Old names of functions and arguments, which are accepted through version 0.2."""

import warnings


def warn_old_name(old: str, new: str) -> None:
    """Warn the caller of the caller (DeprecationWarning) that it uses an old name."""
    warnings.warn(f"{old} is now {new}; the old name is accepted through version 0.2", DeprecationWarning, stacklevel=3)


def under_old_name(old: str, old_value: bool | None, new: str, value: bool) -> bool:
    """The value of a flag that was renamed: `old_value` if the caller used the old name (DeprecationWarning), or else
    `value`. TypeError if both are given."""
    if old_value is None:
        return value
    if value:
        raise TypeError(f"{old} is the old name of {new}: expected one of the two")
    warnings.warn(
        f"{old}= is now {new}=; the old name is accepted through version 0.2", DeprecationWarning, stacklevel=3
    )
    return old_value
