"""Look-ups of keys: the index files that may hold a key, and the live entries in them.

- `plan`           the index files that may hold keys, for one key as for many
- `point`          the entries of one key or a few
- `batch`          the entries of many keys, in Arrow
- `index_files`    index files and their Bloom filters, written, opened and kept open
- `ranges`         ranges of keys: from bounds as callers give them, and from conditions on key columns
- `ordered`        live entries in key order: a merge of the index files
- `key_statistics` the distinct, least, greatest and most frequent keys
- `entries`        the entries of a key as rows, live entries as Arrow batches
- `conditions`     conditions of engines on columns, as look-ups and ranges of keys
"""

from gnomon.shadow.lookup.batch import Matcher, Matches, MatchStats
from gnomon.shadow.lookup.conditions import MOST_KEYS, NotExact, Selection, Values, chosen, exact, selected
from gnomon.shadow.lookup.entries import (
    KEY,
    PARTITION,
    POINTER,
    EntryColumn,
    entry_columns,
    entry_rows,
    matched_entries,
    scan_entries,
    shown_column,
)
from gnomon.shadow.lookup.index_files import (
    FILTER_FOLDER,
    INDEX_FILE_SUFFIX,
    covered_in,
    open_filter,
    open_index_file,
    prove_index_file,
    read_index_file,
    write_index_file,
)
from gnomon.shadow.lookup.key_statistics import KeyStatistics, Piece, distinct_rows, key_statistics
from gnomon.shadow.lookup.ordered import Cursor, OrderedEntries, RangeQuery
from gnomon.shadow.lookup.plan import Keys, Lookup, ParsedKey, Plan, buckets_of_keys, parse_key, parse_keys
from gnomon.shadow.lookup.point import DEFAULTS, Hit, Hits, InFile, LookupOptions, Search
from gnomon.shadow.lookup.ranges import (
    AT_LEAST,
    AT_MOST,
    BEGINS,
    LESS,
    MORE,
    Interval,
    Range,
    interval,
    range_of_key,
    ranges_of,
)

__all__ = [
    "AT_LEAST",
    "AT_MOST",
    "BEGINS",
    "DEFAULTS",
    "FILTER_FOLDER",
    "INDEX_FILE_SUFFIX",
    "KEY",
    "LESS",
    "MORE",
    "MOST_KEYS",
    "PARTITION",
    "POINTER",
    "Cursor",
    "EntryColumn",
    "Hit",
    "Hits",
    "InFile",
    "Interval",
    "KeyStatistics",
    "Keys",
    "Lookup",
    "LookupOptions",
    "MatchStats",
    "Matcher",
    "Matches",
    "NotExact",
    "OrderedEntries",
    "ParsedKey",
    "Piece",
    "Plan",
    "Range",
    "RangeQuery",
    "Search",
    "Selection",
    "Values",
    "buckets_of_keys",
    "chosen",
    "covered_in",
    "distinct_rows",
    "entry_columns",
    "entry_rows",
    "exact",
    "interval",
    "key_statistics",
    "matched_entries",
    "open_filter",
    "open_index_file",
    "parse_key",
    "parse_keys",
    "prove_index_file",
    "range_of_key",
    "ranges_of",
    "read_index_file",
    "scan_entries",
    "selected",
    "shown_column",
    "write_index_file",
]
