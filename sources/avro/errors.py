"""Errors in bytes whose file and position are not known at this level. `block_errors` and `reader` add them."""


class Malformed(ValueError):
    """The bytes are not what the format, or their schema, says they are: DamagedSource."""


class LimitExceeded(Exception):
    """The bytes may be sound, but go beyond a limit of this reader: UnsupportedFormat."""
