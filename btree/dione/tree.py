"""Look-ups in Dione's index files. If the tree has a shape that Gnomon's writer does not make, or a key order that
Arrow does not have, the look-up goes node by node: slower, with the same result."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import cast

from gnomon.btree.batch import Found
from gnomon.btree.blocks import BlockFile, LookupStats
from gnomon.btree.dione.node import DioneDecoder
from gnomon.btree.dione.order import is_arrow_ordered
from gnomon.btree.dione.scan import DioneScan
from gnomon.btree.errors import Irregular
from gnomon.btree.key_batch import SortedKeys
from gnomon.btree.keys import Key
from gnomon.btree.tree import Tree


class DioneTree(Tree):
    """The tree of a Dione file."""

    def __init__(self, file: BlockFile) -> None:
        super().__init__(file)
        self._decoder = cast(DioneDecoder, file.decoder)
        schema = file.schema
        self._has_our_order = is_arrow_ordered(schema.entry.key_types) and not any(schema.nulls_last)

    def get_many(self, keys: Sequence[Key], stats: LookupStats, most: int | None) -> list[list[Key]]:
        """The values for each key."""
        forms = [self._forms(key) for key in keys]
        answers = iter(self._get(list(chain(*forms)), stats, most))
        return [list(chain(*islice(answers, len(some)))) for some in forms]

    def contains_many(self, keys: Sequence[Key], stats: LookupStats, most: int | None) -> list[bool]:
        """For each key, whether an entry exists."""
        forms = [self._forms(key) for key in keys]
        answers = iter(self._contains(list(chain(*forms)), stats, most))
        return [any(list(islice(answers, len(some)))) for some in forms]

    def match(self, keys: SortedKeys, columns: Sequence[str], stats: LookupStats) -> Iterator[Found]:
        """The entries of many keys."""
        if self._has_our_order:
            try:  # only the last leaf may show that the tree is irregular
                yield from list(super().match(keys, columns, stats))
                return
            except Irregular:
                pass
        yield self.match_each(keys, columns, stats, None)

    def scan_range(self, first: Key | None, last: Key | None, stats: LookupStats) -> Iterator[tuple[Key, Key]]:
        """The entries from key `first` to key `last`."""
        begin = None if first is None else self._forms(first)[0]
        end = None if last is None else self._forms(last)[-1]
        yield from self._entries(begin, end, stats)

    def scan(self, columns: Sequence[str], stats: LookupStats) -> DioneScan:
        """A scan of the whole file."""
        return DioneScan(self._file, columns, stats)

    def _forms(self, key: Key) -> list[Key]:
        return self._decoder.probes(self._probe(key))
