"""The indexes of a service, by name."""

from collections.abc import Iterator

from service.errors import NoSuchIndex, Roots
from service.places import places
from service.served import ServedIndex
from service.settings import Settings


class Indexes:
    """All served indexes; the first is the default. They share the memory for caches evenly.

    Opening them raises what `shadow.open_index` raises, and UsageError for names."""

    def __init__(self, settings: Settings) -> None:
        found = places(settings)
        share = settings.cache_bytes // len(found)
        self._by_name = {place.name: ServedIndex(settings, place, share) for place in found}

    def __iter__(self) -> Iterator[ServedIndex]:
        return iter(self._by_name.values())

    @property
    def default(self) -> ServedIndex:
        return next(iter(self))

    def named(self, name: str | None) -> ServedIndex:
        """The index of that name, the default for None. NoSuchIndex lists those there are."""
        if name is None:
            return self.default
        if name not in self._by_name:
            raise NoSuchIndex(f"there is no index of this name; there are {', '.join(self._by_name)}")
        return self._by_name[name]

    @property
    def roots(self) -> Roots:
        """The folders of all of them, which no answer may name."""
        return tuple(pair for served in self for pair in served.roots)
