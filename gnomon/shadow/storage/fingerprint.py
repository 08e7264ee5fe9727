"""The only comparison of fingerprints (size, time, etag, ctime): whether a file is still the one on record."""

from typing import Protocol

ANY_TIME = -1  # of a file whose name is never reused: only its size is on record


class Fingerprinted(Protocol):
    """A file of a listing, an open file, or a file in a segment's manifest."""

    @property
    def size(self) -> int: ...

    @property
    def mtime_ns(self) -> int: ...

    @property
    def etag(self) -> str: ...

    @property
    def ctime_ns(self) -> int: ...


Identity = tuple[int, int, int]


class Identified(Protocol):
    """A file of a listing, or an open file."""

    @property
    def ctime_ns(self) -> int: ...

    @property
    def inode(self) -> tuple[int, int]: ...


def identity(found: Identified) -> Identity:
    """The ctime, device and inode of a local file, which differ from those of any other file with its name, size and
    time. Zeros on other stores. Each cache has them in its keys."""
    return (found.ctime_ns, *found.inode)


def difference(known: Fingerprinted, found: Fingerprinted) -> str:
    """The difference between the found file and the one on record, in words; empty where there is none.

    If both have an etag, it decides: times are coarser, and a listing and a read may show different fractions of the
    same second."""
    if known.size != found.size:
        return f"then {known.size} bytes, now {found.size}"
    if known.etag and found.etag:
        return "" if known.etag == found.etag else "its etag differs"
    return "" if known.mtime_ns in (ANY_TIME, found.mtime_ns) else "its time differs"


def is_in_doubt(known: Fingerprinted, found: Fingerprinted) -> bool:
    """Whether a local file without a `difference` may have been rewritten with the old size and time: its ctime
    differs. New permissions, another hard link or a restored backup change the ctime, too, so its digest decides."""
    return bool(known.ctime_ns and found.ctime_ns) and known.ctime_ns != found.ctime_ns
