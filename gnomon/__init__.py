"""Gnomon, a shadow index for data-lake files: one row by its key, many rows by key, dedup by key.

    >>> import gnomon
    >>> index = gnomon.open_index("/lake/crawl_index")
    >>> index.fetch("https://a.example/7", columns=["url", "status"])
    [{'url': 'https://a.example/7', 'status': 200}]

- `open_index` opens an index in a plain Python program: no Spark, no server.
- `build` takes a SparkSession, or None: then it runs on this machine, without Java. `write_btree` does so for rows in
  Arrow.
- `load`, `filter_new`, `append_new` and the other jobs take a SparkSession (`pip install 'gnomon-index[spark]'`).
- `create_app` makes the HTTP service: `pip install 'gnomon-index[service]'`.
- `compact`, `rebucket`, `vacuum`, `verify`, `history`, `find_all_versions` and `prove_erased` do what the commands do.
- `scan_polars` makes a LazyFrame for Polars and DuckDB, `Samples` a sequence of rows for data loaders.
- `diff`, `unique` and `orphans` compare the keys of indexes, without a read of their sources.
- A job takes the path or URL of an index, or an open `Index`.
- Every error of Gnomon is a `GnomonError`, with the fields `what`, `path`, `offset`, `column`, `expected`, `found` and
  `action`.

A name is imported when it is first used, so `import gnomon` loads neither Spark nor a web framework."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnomon.__main__ import main
    from gnomon.base.errors import GnomonError
    from gnomon.btree.errors import (
        BTreeError,
        DamagedIndexFile,
        Irregular,
        KeyTypeError,
        UnsortedKeys,
    )
    from gnomon.indexer import (
        DedupResult,
        ExecutorsUnfit,
        IndexManager,
        Origin,
        append_batches,
        append_new,
        batch_digest,
        build,
        declare_table,
        export_dione,
        filter_new,
        import_dione,
        join_with_index,
        load,
        load_by_index,
        read_batch,
        read_index,
        register,
        ship,
        task_errors,
        upsert,
        write_btree,
    )
    from gnomon.jobs.build import BuildResult, WriteResult
    from gnomon.jobs.dedup import ChangeResult, delete
    from gnomon.jobs.dione import ImportResult
    from gnomon.service.application import create_app
    from gnomon.service.settings import Settings
    from gnomon.shadow import (
        Answer,
        FetchStats,
        Index,
        RangeQuery,
        Trace,
        key_filter,
        open_index,
        to_json,
    )
    from gnomon.shadow.errors import (
        AlreadyExists,
        BeyondBound,
        BuildFailed,
        CommitLost,
        ConcurrentCommit,
        DamagedMetadata,
        Denied,
        FileChanged,
        FilesGone,
        FilesVanished,
        IndexBehind,
        IndexFileGone,
        IndexNotFound,
        NewerFormat,
        OutOfTime,
        PartitionNotFound,
        ShadowError,
        SnapshotNotFound,
        SourceNotFound,
        SpecMismatch,
        StorageError,
        TableChanged,
        UnknownColumn,
        Unreachable,
        Unreadable,
        UnsafeStore,
        UsageError,
        WorkerLost,
    )
    from gnomon.shadow.key_sets import KeySet, diff, orphans, unique
    from gnomon.shadow.maintenance import CompactResult, VacuumResult, compact, rebucket, vacuum
    from gnomon.shadow.metadata import Record, history
    from gnomon.shadow.polars_scan import scan_polars
    from gnomon.shadow.samples import Samples
    from gnomon.shadow.search import AllVersions, Erasure, find_all_versions, prove_erased
    from gnomon.shadow.verify import Report, verify
    from gnomon.sources.errors import (
        ColumnNotFound,
        DamagedSource,
        NotReadBack,
        OptionError,
        SourceError,
        StalePointer,
        UnsupportedFormat,
    )

__all__ = [
    "AllVersions",
    "AlreadyExists",
    "Answer",
    "BTreeError",
    "BeyondBound",
    "BuildFailed",
    "BuildResult",
    "ChangeResult",
    "ColumnNotFound",
    "CommitLost",
    "CompactResult",
    "ConcurrentCommit",
    "DamagedIndexFile",
    "DamagedMetadata",
    "DamagedSource",
    "DedupResult",
    "Denied",
    "Erasure",
    "ExecutorsUnfit",
    "FetchStats",
    "FileChanged",
    "FilesGone",
    "FilesVanished",
    "GnomonError",
    "ImportResult",
    "Index",
    "IndexBehind",
    "IndexFileGone",
    "IndexManager",
    "IndexNotFound",
    "Irregular",
    "KeySet",
    "KeyTypeError",
    "NewerFormat",
    "NotReadBack",
    "OptionError",
    "Origin",
    "OutOfTime",
    "PartitionNotFound",
    "RangeQuery",
    "Record",
    "Report",
    "Samples",
    "Settings",
    "ShadowError",
    "SnapshotNotFound",
    "SourceError",
    "SourceNotFound",
    "SpecMismatch",
    "StalePointer",
    "StorageError",
    "TableChanged",
    "Trace",
    "UnknownColumn",
    "Unreachable",
    "Unreadable",
    "UnsafeStore",
    "UnsortedKeys",
    "UnsupportedFormat",
    "UsageError",
    "VacuumResult",
    "WorkerLost",
    "WriteResult",
    "append_batches",
    "append_new",
    "batch_digest",
    "build",
    "compact",
    "create_app",
    "declare_table",
    "delete",
    "diff",
    "export_dione",
    "filter_new",
    "find_all_versions",
    "history",
    "import_dione",
    "join_with_index",
    "key_filter",
    "load",
    "load_by_index",
    "main",
    "open_index",
    "orphans",
    "prove_erased",
    "read_batch",
    "read_index",
    "rebucket",
    "register",
    "scan_polars",
    "ship",
    "task_errors",
    "to_json",
    "unique",
    "upsert",
    "vacuum",
    "verify",
    "write_btree",
]

_OF_SPARK = {
    "ExecutorsUnfit",
    "IndexManager",
    "append_batches",
    "append_new",
    "build",
    "declare_table",
    "export_dione",
    "filter_new",
    "import_dione",
    "join_with_index",
    "load",
    "load_by_index",
    "read_batch",
    "read_index",
    "register",
    "ship",
    "task_errors",
    "upsert",
    "write_btree",
}
_OF_JOBS = {
    "append_new": "gnomon.jobs.dedup",
    "build": "gnomon.jobs.build",
    "import_dione": "gnomon.jobs.dione",
    "load": "gnomon.jobs.load",
    "read_batch": "gnomon.jobs.dedup",
    "upsert": "gnomon.jobs.dedup",
    "write_btree": "gnomon.jobs.build",
}
_MODULES = {
    "BuildResult": "gnomon.jobs.build",
    "ChangeResult": "gnomon.jobs.dedup",
    "delete": "gnomon.jobs.dedup",
    "DedupResult": "gnomon.jobs.dedup",
    "ImportResult": "gnomon.jobs.dione",
    "Origin": "gnomon.jobs.dedup",
    "WriteResult": "gnomon.jobs.build",
    "batch_digest": "gnomon.jobs.dedup",
    "Settings": "gnomon.service.settings",
    "create_app": "gnomon.service.application",
    "main": "gnomon.__main__",
    "Samples": "gnomon.shadow.samples",
    "scan_polars": "gnomon.shadow.polars_scan",
    "KeySet": "gnomon.shadow.key_sets",
    "diff": "gnomon.shadow.key_sets",
    "orphans": "gnomon.shadow.key_sets",
    "unique": "gnomon.shadow.key_sets",
    "CompactResult": "gnomon.shadow.maintenance",
    "Record": "gnomon.shadow.metadata",
    "VacuumResult": "gnomon.shadow.maintenance",
    "compact": "gnomon.shadow.maintenance",
    "history": "gnomon.shadow.metadata",
    "rebucket": "gnomon.shadow.maintenance",
    "vacuum": "gnomon.shadow.maintenance",
    "AllVersions": "gnomon.shadow.search",
    "Erasure": "gnomon.shadow.search",
    "find_all_versions": "gnomon.shadow.search",
    "prove_erased": "gnomon.shadow.search",
    "Report": "gnomon.shadow.verify",
    "verify": "gnomon.shadow.verify",
}


_OF_ERRORS = ("gnomon.shadow.errors", "gnomon.sources.errors", "gnomon.btree.errors")


def _imported(name: str) -> Any:
    """Import a name when it is first used. ModuleNotFoundError, with the extra to install, where its packages are not
    installed."""
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("gnomon-index")
    if name not in __all__:
        raise AttributeError(f"module 'gnomon' has no attribute {name!r}")
    module = "gnomon.indexer" if name in _OF_SPARK else _MODULES.get(name, "gnomon.shadow")
    if name in _OF_JOBS and not importlib.import_module("gnomon.jobs.build").has_spark():
        module = _OF_JOBS[name]  # the same job, for this process alone
    try:
        imported = importlib.import_module(module)
        if not hasattr(imported, name):  # an error that the shadow does not name
            of_errors = map(importlib.import_module, _OF_ERRORS)
            imported = next(one for one in of_errors if hasattr(one, name))
        found = getattr(imported, name)
    except ModuleNotFoundError as error:
        extra = {"gnomon.indexer": "spark", "gnomon.service": "service"}.get(".".join(module.split(".")[:2]))
        if extra is None or (error.name or "").partition(".")[0] == "gnomon":
            raise
        install = f"which is not installed: pip install 'gnomon-index[{extra}]'"
        raise ModuleNotFoundError(f"gnomon.{name} needs the package {error.name}, {install}", name=error.name) from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if not TYPE_CHECKING:  # with it, a type checker would accept any name
    __getattr__ = _imported
