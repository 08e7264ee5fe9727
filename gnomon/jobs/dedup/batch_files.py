"""The files of a batch: their list, their format and their metadata."""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gnomon.base.actions import Action
from gnomon.jobs.files import READERS, check_names, listed, of_one_format
from gnomon.shadow.errors import SourceNotFound, UsageError
from gnomon.shadow.metadata import SourceRoot, source_root
from gnomon.shadow.storage import FileInfo, OpenFile, Place, Readable, as_location
from gnomon.shadow.tables import check_plain_files, partition_values
from gnomon.sources import FORMATS, Options, Split, detect, open_source

FORMAT_NAMES = ("auto", *FORMATS)
LEAST_SPLIT, LARGEST_SPLIT = 8 << 20, 128 << 20  # bytes
MOST_TASKS = 10_000
EXPECTED = "a batch: a data file whose name engines do not skip, or a folder of such files"
TEXT = {"whole_file": "true"}  # a batch is read from beginning to end, so compressed text is allowed
# The options for a text file that is opened for its digest only: no content is an error.
BARE_TEXT = {"csv": {**TEXT, "schema": "", "header": "false", "quote": ""}, "jsonl": {**TEXT, "schema": ""}}


@dataclass(frozen=True)
class BatchFile:
    """A file of a batch: the values of its partition folders, its own columns, its options, and its splits."""

    info: FileInfo
    values: Mapping[str, str | None]
    schema: pa.Schema
    options: Options
    splits: Sequence[Split]


def batch_digest(path: Place, format: str = "auto") -> str:
    """A name for a batch, 16 hex digits. It depends on the paths of its files below `path`, their sizes, and some of
    their bytes (a footer, a header, both ends of a text). A copy has the same name, whatever its times."""
    root, format_name, infos = batch_root(as_location(path), format)
    options = BARE_TEXT.get(format_name, {})

    def found(info: FileInfo) -> str:
        with open_file(root.storage, info) as reader, of_one_format(reader, format_name):
            return open_source(reader, format_name, options).digest

    digest = hashlib.blake2b(digest_size=8)
    with ThreadPoolExecutor(READERS) as pool:
        for info, of_file in zip(infos, pool.map(found, infos), strict=True):
            digest.update(f"{info.path}\0{info.size}\0{of_file}\0".encode())
    return digest.hexdigest()


def batch_root(path: str, format: str) -> tuple[SourceRoot, str, list[FileInfo]]:
    """The root of a batch, its format (that of its first file if `auto`), and its files, ordered by path.
    SourceNotFound where there are none, UsageError where they belong to a lake table."""
    if format not in FORMAT_NAMES:
        raise UsageError(f"format: expected one of {', '.join(FORMAT_NAMES)}, found {format!r}")
    if not path:
        raise SourceNotFound("no such file", "(empty)", expected=EXPECTED)
    try:
        root = source_root(path)
    except SourceNotFound as error:
        raise SourceNotFound(error.what, error.path, expected=EXPECTED) from None
    infos, lake_table = root.listing()
    check_plain_files(lake_table, path, "write its live rows to plain files, and append these")
    if format == "auto":
        with open_file(root.storage, infos[0]) as reader:
            format = detect(reader)
        check_names(root, format, infos)
    return root, format, infos


def describe_batch(
    root: SourceRoot, format: str, infos: Sequence[FileInfo], options: Options, tasks: int
) -> list[BatchFile]:
    """Open each file, read its metadata, and divide it into splits for a number of tasks. A file that is damaged, has
    another format, names a column twice, or has other partition columns is an error."""
    is_partitioned = bool(root.partitions(infos))
    target = min(max(sum(info.size for info in infos) // tasks, LEAST_SPLIT), LARGEST_SPLIT)

    def one(info: FileInfo) -> BatchFile:
        with open_file(root.storage, info) as reader:
            with of_one_format(reader, format):
                source = open_source(reader, format, options)
            schema = source.schema
            if twice := [name for name in schema.names if schema.names.count(name) > 1]:
                raise UsageError(f"it has more than one column {twice[0]}; expected each name once", reader.name)
            values = partition_values(root.partition_of(info.path, is_partitioned))
            return BatchFile(info, values, schema, options, source.splits(target))

    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(one, infos))


def task_shares(files: Sequence[BatchFile], tasks: int) -> list[list[tuple[int, Split]]]:
    """The splits for each task, each with the ordinal of its file. A task gets consecutive splits, and all tasks get
    about the same number of bytes. There are about `tasks` tasks, or more where splits are many."""
    pieces = [(ordinal, split) for ordinal, file in enumerate(files) for split in file.splits]
    tasks = min(len(pieces), max(tasks, len(pieces) // 64), MOST_TASKS)
    sizes = np.array([end - begin + 1 for _, (begin, end) in pieces], dtype=np.int64)
    ends = np.cumsum(sizes)
    owners = (ends - sizes // 2 - 1) * tasks // ends[-1]
    return [[pieces[i] for i in np.flatnonzero(owners == task).tolist()] for task in np.unique(owners)]


def open_file(storage: Readable, info: FileInfo) -> AbstractContextManager[OpenFile]:
    """An open file of the batch. StalePointer where it changed since the listing."""
    return listed(storage, info, "while the batch was read", Action.RUN_WHOLE)
