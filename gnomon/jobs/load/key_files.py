"""Key columns of a file, or of the files of a folder."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from gnomon.jobs.files import Described, describe, listed
from gnomon.shadow.errors import SourceNotFound, UsageError
from gnomon.shadow.metadata import other_delimiter, source_root
from gnomon.shadow.storage import FileInfo, storage_at
from gnomon.sources import Options, Split, open_source
from gnomon.sources.types import to_ddl

CSV_ENDINGS, JSON_ENDINGS = (".csv", ".tsv"), (".json", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class KeyFile:
    """The key columns of a file, or of the files of a folder. `schema` has their types: text, where CSV or JSON lines
    hold them. `pieces` are ranges of the files, in the order of their paths, below `root`."""

    root: str
    format: str
    options: Options
    pieces: Sequence[tuple[FileInfo, Split]]
    schema: pa.Schema

    def batches(self, pieces: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of all pieces, or of the pieces with these numbers. StalePointer where a file changed since it was
        opened."""
        storage = storage_at(self.root)
        for info, split in self.pieces if pieces is None else map(self.pieces.__getitem__, pieces):
            with listed(storage, info) as reader:
                source = open_source(reader, self.format, self.options)
                there = [name for name in self.schema.names if name in source.schema.names]
                for batch in source.scan(reader, there, split):
                    found = dict(zip(there, batch.columns, strict=False))  # drops the pointer columns
                    arrays = [found.get(name, pa.nulls(batch.num_rows)) for name in self.schema.names]
                    yield pa.RecordBatch.from_arrays(arrays, self.schema.names).cast(self.schema)


def key_file(path: str, names: Sequence[str]) -> KeyFile:
    """The key columns with these names of a file, or of the files of a folder. The format comes from the ending of the
    path, by default Parquet. UsageError where no file has one of the columns, or where files differ in its type."""
    try:
        root = source_root(path)
    except SourceNotFound:
        raise UsageError("no such file or folder; expected keys there", path) from None
    format, options = _format(path, names)
    described = describe(root, format, options, False, root.list(), names)
    there = dict.fromkeys(name for one in described for name in one.schema.names)
    missing = [name for name in names if name not in there]
    if missing:
        known = (", ".join(there) or "no columns") + other_delimiter(list(there))
        raise UsageError(f"the key column {', '.join(missing)} is missing; it has {known}", path)
    schema = pa.schema([pa.field(name, _type(described, name, path)) for name in names])
    pieces = [(one.entry.info, split) for one in described for split in one.splits]
    return KeyFile(root.storage.root, format, options, pieces, schema)


def _format(path: str, names: Sequence[str]) -> tuple[str, Options]:
    if path.lower().endswith(CSV_ENDINGS):
        return "csv", {"whole_file": "true"}
    if path.lower().endswith(JSON_ENDINGS):
        return "jsonl", {"whole_file": "true", "schema": to_ddl(pa.schema([(name, pa.string()) for name in names]))}
    return "parquet", {}


def _type(described: Sequence[Described], name: str, path: str) -> pa.DataType:
    kinds = {one.schema.field(name).type for one in described if name in one.schema.names}
    kinds = {kind for kind in kinds if not pa.types.is_null(kind)} or {pa.null()}
    if len(kinds) > 1:
        raise UsageError(
            f"the key column {name} is {' and '.join(map(str, kinds))} in its files; expected one type", path
        )
    return next(iter(kinds))
