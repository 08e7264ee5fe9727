"""What tasks read and write: the indexed columns of a source file, and files that the program must see."""

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from gnomon.jobs.files.source_files import listed
from gnomon.shadow.errors import StorageError
from gnomon.shadow.maintenance import stored_columns
from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.storage import FileInfo, Readable, Storage
from gnomon.sources import Split, open_source


def scan_file(
    storage: Readable, info: FileInfo, spec: IndexSpec, split: Split, on_ragged: Callable[[int], None]
) -> Iterator[list[pa.Array]]:
    """The batches of a range of a listed file, as `stored_columns` makes them. `on_ragged` is called at the end, with
    the number of ragged records. StalePointer where the file changed since the listing."""
    with listed(storage, info) as reader:
        source = open_source(reader, spec.format, spec.read_options)
        names = [column.name for column in (*spec.stored_keys, *spec.include)]
        there = [name for name in names if name in source.schema.names]
        yield from stored_columns(spec, source.scan(reader, there, split), reader.name)
        on_ragged(source.ragged)


def check_visible(storage: Storage, sizes: Mapping[str, int]) -> None:
    """Raise StorageError where tasks wrote files of these sizes to disks of other machines."""
    for path, size in sizes.items():
        try:
            with storage.open(path) as file:
                found = file.size
        except FileNotFoundError:
            found = -1
        if found != size:
            raise StorageError(
                f"a task wrote {size:,} bytes, and {'none' if found < 0 else found} are here; expected a disk that "
                "executors and this machine share: docs/operations/cluster.md; nothing was committed",
                f"{storage.root}/{path}",
            )
