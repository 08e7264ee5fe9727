"""One open index file: look-ups, scans and checks."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from gnomon.base.errors import Action
from gnomon.base.readers import RangeReader
from gnomon.btree.batch import Found
from gnomon.btree.blocks import BlockFile, Leaves, LookupStats
from gnomon.btree.dione.tree import DioneTree
from gnomon.btree.errors import BTreeError
from gnomon.btree.key_batch import SortedKeys
from gnomon.btree.keys import Key
from gnomon.btree.scan import Census
from gnomon.btree.schema import EntrySchema
from gnomon.btree.tree import Tree

__all__ = ["BTreeReader", "Census", "LookupStats"]


class BTreeReader:
    """An open index file, which threads may share: a look-up changes only the cache of upper nodes.

    Each look-up checks the nodes that it visits: framing, sync markers, order, and that a node lies after its parent in
    the file and between its parent's keys in order. A block that two links reach is refused, so every look-up ends."""

    def __init__(
        self,
        reader: RangeReader,
        stats: LookupStats | None = None,
        head_bytes: int | None = None,
        leaves: Leaves | None = None,
        action: Action = Action.BUILD_FULL,
    ) -> None:
        """`head_bytes`, if known (`IndexFile.head_bytes`), is the length of header and upper levels: they come in one
        read. Otherwise it is guessed from the file's size. If that read gets the whole file, it stays in memory.
        `leaves` caches the leaves that look-ups of single keys decode. `action` is the advice in errors about a damaged
        file."""
        stats = stats if stats is not None else LookupStats()
        self._file = BlockFile(reader, stats, head_bytes, leaves, action)
        self.path = self._file.path
        self.codec = self._file.codec
        self.schema: EntrySchema = self._file.schema.entry
        self.entries = self._file.entries  # None in a file that does not state it
        self._tree = Tree(self._file) if self._file.is_gnomon_file else DioneTree(self._file)

    @property
    def cache_bytes(self) -> int:
        """Memory that this reader holds."""
        return self._file.cache_bytes + self._tree.inner_levels_bytes

    @property
    def is_whole(self) -> bool:
        """Whether all of the file is in memory, so that look-ups read nothing."""
        return self._file.is_whole

    def forget_leaves(self) -> None:
        """Keep only the levels above the leaves of a file that was read whole."""
        self._file.forget_leaves()

    @property
    def file_bytes(self) -> int:
        """Length of the file."""
        return self._file.size

    @property
    def metadata(self) -> dict[str, bytes]:
        """The metadata of the header."""
        return dict(self._file.metadata)

    @property
    def header_bytes(self) -> int:
        """Length of the header."""
        return self._file.start

    @property
    def upper_bytes(self) -> int:
        """Length of the levels above the leaves; 0 in a file that does not state it, or has none."""
        return self._file.upper_bytes

    @property
    def has_inner_levels(self) -> bool:
        """Whether the levels above the leaves are cached in the form for `match`."""
        return self._tree.inner_levels_bytes > 0

    # -- look-ups --------------------------------------------------------------------------------------------------

    def get(self, key: Key, stats: LookupStats | None = None) -> list[Key]:
        """The values of every entry with this key (in stored form), in file order."""
        return self.get_many([key], stats)[0]

    def get_many(
        self, keys: Sequence[Key], stats: LookupStats | None = None, most: int | None = None
    ) -> list[list[Key]]:
        """The values for each key, in the order of `keys`. Each node is read and decoded at most once; the file is read
        forward. TooMany where more than `most` values were found before the next node is visited, or where a node has
        more than `most` records; such a node is not decoded."""
        return self._tree.get_many(keys, stats or LookupStats(), most)

    def contains_many(
        self, keys: Sequence[Key], stats: LookupStats | None = None, most: int | None = None
    ) -> list[bool]:
        """For each key, in the order of `keys`, whether an entry exists. Visits nodes like `get_many`, but never below
        a found entry. TooMany where a node has more than `most` records."""
        return self._tree.contains_many(keys, stats or LookupStats(), most)

    def match(self, keys: SortedKeys, columns: Sequence[str], stats: LookupStats | None = None) -> Iterator[Found]:
        """The entries of many keys, with these of their value columns. Without columns, only the keys that exist (each
        at least once). Leaves are read in long ranges and decoded together, thousands for each piece of the result. The
        pieces together equal the result of `get_many`, in file order."""
        return self._tree.match(keys, columns, stats or LookupStats())

    def match_each(
        self, sorted_keys: SortedKeys, columns: Sequence[str], stats: LookupStats | None = None, most: int | None = None
    ) -> Found:
        """Like `match`, but key by key: faster for few keys. Memory holds the whole result. TooMany where more than
        `most` entries were found before the next node is visited, or where a node has more than `most` records."""
        return self._tree.match_each(sorted_keys, columns, stats or LookupStats(), most)

    def scan(self, stats: LookupStats | None = None) -> Iterator[tuple[Key, Key]]:
        """All entries in key order, as (key, value) in stored form."""
        return self.scan_range(None, None, stats)

    def scan_range(
        self, first: Key | None, last: Key | None, stats: LookupStats | None = None
    ) -> Iterator[tuple[Key, Key]]:
        """The entries from key `first` to key `last`, both included, in key order; None leaves an end open. Nodes
        outside of the range are not read."""
        return self._tree.scan_range(first, last, stats or LookupStats())

    def scan_batches(
        self, columns: Sequence[str] | None = None, stats: LookupStats | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All entries in key order as Arrow batches of these columns, by default all, with the checks of `check`.

        DamagedIndexFile may come after some batches: these batches are sound, but the file is not."""
        names = [column.name for column in self.schema.columns]
        unknown = [name for name in columns or () if name not in names]
        if unknown:
            raise BTreeError(f"this file has no column {', '.join(unknown[:5])}; it has {', '.join(names)}")
        return self._tree.scan(names if columns is None else columns, stats or LookupStats()).batches()

    def sample(self, count: int) -> list[tuple[Key, Key]]:
        """Up to `count` entries, spread over the root, as (key, value) in stored form."""
        return self._tree.sample(count)

    # -- proof -----------------------------------------------------------------------------------------------------

    def check(self) -> int:
        """Read the whole file as a tree and return its number of entries. DamagedIndexFile as in `census`."""
        return self.census().entries

    def census(self) -> Census:
        """Read the whole file and count its parts. DamagedIndexFile for any fault: framing, order inside and across
        nodes, a wrong link, bytes that no link or two links reach, text that is not UTF-8, or a wrong number of
        entries."""
        scan = self._tree.scan([column.name for column in self.schema.columns], LookupStats())
        for _ in scan.batches():
            pass
        return scan.census
