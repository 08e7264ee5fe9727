"""Dione's `IndexManager` on a Gnomon index, and the export of an index as a table of Dione. Users of Dione only change
an import.

The data is a table of the Spark catalog, and so is the index: an external Avro table, partitioned like the data, whose
location is the folder of the index. A name with a slash is the path of a source or an index, which then has no table.
docs/guide/from-dione.md lists the differences from Dione.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from gnomon.indexer.build import build
from gnomon.indexer.datasource import INDEX, PROPERTIES, declare_table, form_of, read_index, table_properties
from gnomon.indexer.join import join_with_index, load_by_index
from gnomon.indexer.tables import default_location, read_table
from gnomon.jobs.build import BuildRequest, plan
from gnomon.jobs.dione import DATA_TABLE, Exported
from gnomon.jobs.dione import export_dione as export
from gnomon.jobs.dione import table_properties as dione_properties
from gnomon.jobs.files import CatalogTable, is_table
from gnomon.shadow import OpenIndex, UsageError
from gnomon.shadow.errors import ConcurrentCommit, PartitionNotFound
from gnomon.shadow.maintenance import compact, vacuum
from gnomon.shadow.metadata import check_names, newest_view, open_view
from gnomon.shadow.storage import Place, Storage, as_location, storage_at
from gnomon.shadow.tables import TABLE_PREFIX, partition_values
from gnomon.shadow.verify import plain_table


def export_dione(
    spark: SparkSession | None, index: Place, target: Place, location: Place | None = None, data_table: str = ""
) -> Exported:
    """Write the newest snapshot of an index as an index of Dione (`gnomon.jobs.dione.export_dione`, with its errors).

    `target` is a folder, or a table `table:db.name` in the catalog of the session, which this call declares or updates.
    `location` is the folder of such a table, by default the catalog's. `data_table` is the name of the data table, if
    the index is not of a catalog table."""
    place = as_location(target)
    if not is_table(place):
        if location is not None:
            raise UsageError(f"location: {place} is one already; name a table")
        return export(index, place, data_table=data_table)
    table = place.removeprefix(TABLE_PREFIX)
    if spark is None:
        raise UsageError("a table of the catalog is declared by Spark; name a folder", place)
    folder = default_location(spark, table) if location is None else as_location(location)
    if spark.catalog.tableExists(table):
        there = read_table(spark, place)
        if not isinstance(there, CatalogTable) or DATA_TABLE not in there.properties:
            raise UsageError("another table has this name; name a new one", place)
        for name, expected in dione_properties(open_view(storage_at(index)).spec, data_table).items():
            if there.properties.get(name, "") != expected:
                what = f"its property {name} is of another index; drop the table and export again"
                raise UsageError(what, place, expected=expected, found=there.properties.get(name, ""))
        folder = there.location
    found = export(index, folder, table, data_table)
    spark.sql(found.statement)
    spark.sql(f"MSCK REPAIR TABLE {table} SYNC PARTITIONS")
    return found


Partition = Sequence[tuple[str, object]]  # column and value, as [("dt", "2026-01-01")]
# Properties of an index's table, for people who read them.
SOURCE, KEYS, MORE_FIELDS = (f"{PROPERTIES}{name}" for name in ("source", "keys", "more_fields"))
DIONE = "index.meta.dataTableName"  # a property of Dione's index tables


class IndexManager:
    """An index of a table, maintained and used by partition. `create_new` and `load` make it.

    Each call that appends commits. Then it merges segments, removes files that no snapshot needs, and updates the
    index's table, also after an earlier call that died before this. Errors: see `gnomon.shadow.errors`."""

    def __init__(self, spark: SparkSession, index: str, table: str | None) -> None:
        self.spark = spark
        self.index = index
        self.table = table
        self._opened = OpenIndex.of(index)
        spec = self._opened.spec
        self.source = spec.source.name
        self.keys = [key.name for key in spec.keys]
        self.more_fields = [column.name for column in spec.include]

    # -- maintenance ---------------------------------------------------------------------------------------------------

    @staticmethod
    def create_new(
        spark: SparkSession,
        data_table_name: str,
        index_table_name: str,
        keys: Sequence[str],
        more_fields: Sequence[str] | None = None,
        location: str | None = None,
        form: str | None = None,
        buckets: int | None = None,
    ) -> "IndexManager":
        """Make a new index without indexed partitions. `location` is the folder of an index with a table (by default
        the table's folder in the catalog). `form` is as in `declare_table`, `buckets` as in `build` (the default
        depends on the current rows). UsageError where the index exists; an index whose table was dropped is declared
        again."""
        source = data_table_name if _is_path(data_table_name) else f"{TABLE_PREFIX}{data_table_name}"
        table = None if _is_path(index_table_name) else index_table_name
        if table is None and location is not None:
            raise UsageError(f"location: {index_table_name} is one already; name a table")
        form = form_of(spark, form)
        if table is not None and table_properties(spark, table) is not None:
            raise UsageError("there is a table of this name; IndexManager.load opens an index", table)
        storage = storage_at(location or (default_location(spark, table) if table else index_table_name))
        there = newest_view(storage)
        if table is None and there is not None:
            raise UsageError("there is an index already; IndexManager.load opens it", storage.root)
        stranger = next(iter(storage.list()), None) if there is None else None
        if stranger is not None:
            raise UsageError(
                f"there are files already ({stranger.path}); name another folder, or empty it", storage.root
            )
        build(spark, source, storage.root, keys, more_fields or (), buckets=buckets, flat=False, partitions=[])
        manager = IndexManager(spark, storage.root, table)
        manager._declare(form)
        return manager

    @staticmethod
    def load(spark: SparkSession, index_table_name: str) -> "IndexManager":
        """The index of this name, which `create_new` made, or the index at this path."""
        table = None if _is_path(index_table_name) else index_table_name
        storage = storage_at(_location_of(spark, table) if table is not None else index_table_name)
        return IndexManager(spark, storage.root, table)

    def get_missing_partitions(self) -> list[list[tuple[str, str | None]]]:
        """The partitions of the data that the index does not cover fully: they are not indexed, or files were added,
        changed or removed since. Values are text. The partition of a table without partition columns is an empty
        list."""
        request = BuildRequest(self.keys, self.more_fields)
        planned = plan(self.source, self.index, request, partial(read_table, self.spark))
        found, root = planned.difference, planned.root
        covered = planned.view.covered if planned.view is not None else {}
        gone = set(found.vanished)
        stay = {file.partition for path, file in covered.items() if path not in gone}
        missing = {root.partition_of(info.path, bool(planned.partitions)) for info in found.to_index}
        missing |= {covered[path].partition for path in gone} & stay
        return [list(partition_values(partition).items()) for partition in sorted(missing)]

    def append_missing_partitions(self) -> None:
        """Index the partitions of `get_missing_partitions`, and drop entries of files that are gone from the data."""
        self._append(None)

    def append_new_partitions(self, partitions_spec: Iterable[Partition]) -> None:
        """Index only these partitions, each a list of (column, value). Some of the columns select all partitions with
        these values. A partition that is covered fully costs nothing."""
        partitions = [dict(_pairs(one)) for one in partitions_spec]
        if not partitions:
            raise UsageError("partitions_spec: it is empty; expected partitions, like [[('dt', '2026-01-01')]]")
        self._append(partitions)

    # -- use -----------------------------------------------------------------------------------------------------------

    def get_index(self) -> DataFrame:
        """The entries of the newest snapshot: keys, more fields, pointers, partition columns."""
        return read_index(self.spark, self.index)

    def join_with_index(self, df: DataFrame, how: str = "inner", null_safe: bool = False) -> DataFrame:
        """Each row of `df` with each entry of its key, in the row's partition if `df` has partition columns."""
        partitions = self._refreshed().spec.partitions
        within = [name for name in partitions if name in df.columns and name not in self.keys]
        return join_with_index(self.spark, self.index, df, how, null_safe, within)

    def load_by_index(
        self, query_df: DataFrame, fields: Sequence[str] | None = None, unreadable: str = "fail"
    ) -> DataFrame:
        """The rows of filtered or joined entries: the columns of `query_df` without the pointer, then `fields`
        (default: all of the data). A field that `query_df` has, too, is read from the data."""
        check_names("fields", fields)
        index = self._refreshed()
        names = index.view.columns if fields is None else fields
        read = [name for name in names if name not in self.keys and name not in index.spec.partitions]
        kept = query_df.drop(*[name for name in read if name in query_df.columns])
        return load_by_index(self.spark, self.index, kept, names, unreadable)

    def fetch(
        self,
        key: Sequence[object],
        partition_spec: Partition | Mapping[str, object] | None = None,
        fields: Sequence[str] | None = None,
    ) -> dict[str, Any] | None:
        """One row with this key (values in the order of the key columns), in these partitions or in any; None if there
        is none. It has the keys and `fields`, by default all columns except the partition columns."""
        rows = self._fetch(key, partition_spec, fields, 1)
        return rows[0] if rows else None

    def fetch_all(
        self,
        key: Sequence[object],
        partition_spec: Partition | Mapping[str, object] | None = None,
        fields: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """All rows with this key; see `fetch`."""
        return self._fetch(key, partition_spec, fields, None)

    # -- implementation ------------------------------------------------------------------------------------------------

    def _refreshed(self) -> OpenIndex:
        self._opened.refresh()
        return self._opened

    def _append(self, partitions: list[dict[str, object]] | None) -> None:
        build(self.spark, self.source, self.index, self.keys, self.more_fields, partitions=partitions)
        storage = storage_at(self.index)
        with suppress(ConcurrentCommit):  # the next call does the rest
            _tidy(storage)
        self._declare()

    def _declare(self, form: str | None = None) -> None:
        if self.table is not None:
            lists = {KEYS: json.dumps(self.keys), MORE_FIELDS: json.dumps(self.more_fields)}
            declare_table(self.spark, self.index, self.table, form, {SOURCE: self.source, **lists})

    def _fetch(
        self,
        key: Sequence[object],
        partition_spec: Partition | Mapping[str, object] | None,
        fields: Sequence[str] | None,
        limit: int | None,
    ) -> list[dict[str, Any]]:
        if isinstance(key, (str, bytes)) or not isinstance(key, Sequence):
            raise UsageError(f"key: expected a list of {len(self.keys)} values ({', '.join(self.keys)}), found {key!r}")
        check_names("fields", fields)
        index = self._refreshed()
        where = dict(_pairs(partition_spec or ()))
        if not index.view.source_files:  # the columns are unknown before the first file
            index.check([list(key)], None, where)
            return []
        if fields is None:
            fields = [name for name in index.view.columns if name not in index.spec.partitions]
        columns = list(dict.fromkeys([*self.keys, *fields]))
        try:
            rows: list[dict[str, Any]] = index.answer_many([list(key)], columns, where, limit)[0].rows
        except PartitionNotFound:  # a partition that was not appended yet has no rows, as in Dione
            return []
        return rows


def _tidy(storage: Storage) -> None:
    """Remove the files and dead entries that an engine would read from the folder and that the newest snapshot does not
    have."""
    seen = plain_table(storage, open_view(storage))
    if seen.dead_entries:
        compact(storage)
    if not seen.equals_snapshot:
        vacuum(storage, grace_seconds=0)


def _location_of(spark: SparkSession, table: str) -> str:
    properties = table_properties(spark, table)
    if properties is None:
        raise UsageError(
            "no such table; IndexManager.create_new declares one, also of an index that is there already", table
        )
    if INDEX not in properties:
        dione = ", but of Dione's" if DIONE in properties else ""
        raise UsageError(f"not the table of an index of ours{dione}; IndexManager.create_new makes one", table)
    return properties[INDEX]


def _is_path(name: str) -> bool:
    return "/" in name


def _pairs(partition: Partition | Mapping[str, object]) -> Sequence[tuple[str, object]]:
    """A partition as pairs of column and value."""
    pairs = list(partition.items()) if isinstance(partition, Mapping) else list(partition)
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise UsageError(f"partition: expected pairs of column and value, like [('dt', '2026-01-01')], found {pairs!r}")
    return pairs
