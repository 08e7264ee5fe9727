"""Errors in bytes whose file and position are not known at this level. `block_errors` and `reader` add them."""


class Malformed(ValueError):
    """The bytes violate the format or their schema: DamagedSource."""


class LimitExceeded(Exception):
    """The bytes may be sound, but exceed a limit of this reader: UnsupportedFormat."""
