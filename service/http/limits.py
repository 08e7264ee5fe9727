"""The limits of a connection that settings decide."""

from dataclasses import dataclass

from gnomon.service.settings import Settings

# Every byte of a key may be percent-encoded; the rest is for the other parameters and key columns.
ENCODED_BYTES, OTHER_BYTES = 3, 64 * 1024


@dataclass(frozen=True)
class Limits:
    """How much a client may send, and how long it may take."""

    target_bytes: int
    connections: int
    read_seconds: float
    idle_seconds: float
    root_path: str = ""  # path before the path of a probe

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        longest = ENCODED_BYTES * settings.max_key_bytes + OTHER_BYTES
        return cls(longest, settings.max_connections, settings.read_seconds, settings.idle_seconds, settings.root_path)
