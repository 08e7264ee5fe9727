"""What can be wrong with bytes whose file and place are not known here. `reader.py` adds them."""


class Malformed(ValueError):
    """The bytes are not what the format, or their schema, says they are: DamagedSource."""


class Beyond(Exception):
    """The bytes may be sound, but go beyond a limit of this reader: UnsupportedFormat."""
