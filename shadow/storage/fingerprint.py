"""Whether a file is still the one on record: the only place that compares fingerprints (size, time, etag, ctime)."""

from typing import Protocol

ANY_TIME = -1  # of a file whose name is never used twice: its size is all that is on record


class Fingerprinted(Protocol):
    """A file as a listing, an open file or a segment's manifest shows it."""

    @property
    def size(self) -> int: ...

    @property
    def mtime_ns(self) -> int: ...

    @property
    def etag(self) -> str: ...

    @property
    def ctime_ns(self) -> int: ...


def difference(known: Fingerprinted, found: Fingerprinted) -> str:
    """How the file that was found differs from the one on record, in words; empty where it does not.

    The store's etag decides where both have one: times are coarser, and a listing and a read may show different
    fractions of the same second."""
    if known.size != found.size:
        return f"then {known.size} bytes, now {found.size}"
    if known.etag and found.etag:
        return "" if known.etag == found.etag else "its etag differs"
    return "" if known.mtime_ns in (ANY_TIME, found.mtime_ns) else "its time differs"


def is_in_doubt(known: Fingerprinted, found: Fingerprinted) -> bool:
    """Whether a local file without a `difference` may have been rewritten, its size and time put back: its ctime is
    another one. New rights, another hard link or a restored backup have that effect, too: its digest decides."""
    return bool(known.ctime_ns and found.ctime_ns) and known.ctime_ns != found.ctime_ns
