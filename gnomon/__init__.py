"""Gnomon, a shadow index for data-lake files: one row by its key, many rows by key, dedup by key.

    >>> import gnomon
    >>> index = gnomon.open_index("/lake/crawl_index")
    >>> index.fetch("https://a.example/7", columns=["url", "status"])
    [{'url': 'https://a.example/7', 'status': 200}]

- `open_index` opens an index in a plain Python program: no Spark, no server.
- `build` takes a SparkSession, or None: then it runs in this process, without Java. `write_btree` does so for rows in
  Arrow.
- `load`, `filter_new`, `append_new` and the other jobs take a SparkSession (`pip install 'gnomon-index[spark]'`).
- `create_app` makes the HTTP service: `pip install 'gnomon-index[service]'`.
- Every error of Gnomon is a `GnomonError`, with the fields `what`, `path`, `offset`, `column`, `expected`, `found` and
  `action`.

A name is imported when it is first used, so `import gnomon` loads neither Spark nor a web framework."""

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnomon.__main__ import main
    from gnomon.indexer import (
        DedupResult,
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
        BTreeError,
        DamagedIndexFile,
        DamagedMetadata,
        FetchStats,
        FilesVanished,
        GnomonError,
        Index,
        IndexNotFound,
        KeyTypeError,
        NewerFormat,
        PartitionNotFound,
        RangeQuery,
        ShadowError,
        SnapshotNotFound,
        SourceError,
        SourceNotFound,
        SpecMismatch,
        StalePointer,
        Trace,
        UnknownColumn,
        UsageError,
        key_filter,
        open_index,
        to_json,
    )
    from gnomon.shadow.polars_scan import scan_polars

__all__ = [
    "Answer",
    "BTreeError",
    "BuildResult",
    "ChangeResult",
    "DamagedIndexFile",
    "DamagedMetadata",
    "DedupResult",
    "FetchStats",
    "FilesVanished",
    "GnomonError",
    "ImportResult",
    "Index",
    "IndexManager",
    "IndexNotFound",
    "KeyTypeError",
    "NewerFormat",
    "Origin",
    "PartitionNotFound",
    "RangeQuery",
    "Settings",
    "ShadowError",
    "SnapshotNotFound",
    "SourceError",
    "SourceNotFound",
    "SpecMismatch",
    "StalePointer",
    "Trace",
    "UnknownColumn",
    "UsageError",
    "WriteResult",
    "append_batches",
    "append_new",
    "batch_digest",
    "build",
    "create_app",
    "declare_table",
    "delete",
    "export_dione",
    "filter_new",
    "import_dione",
    "join_with_index",
    "key_filter",
    "load",
    "load_by_index",
    "main",
    "open_index",
    "read_batch",
    "read_index",
    "register",
    "scan_polars",
    "ship",
    "to_json",
    "upsert",
    "write_btree",
]

_OF_SPARK = {
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
    "scan_polars": "gnomon.shadow.polars_scan",
}


def _imported(name: str) -> Any:
    """Import a name when it is first used. ModuleNotFoundError, with the extra to install, where its packages are not
    installed."""
    if name == "__version__":
        return importlib.metadata.version("gnomon-index")
    if name not in __all__:
        raise AttributeError(f"module 'gnomon' has no attribute {name!r}")
    module = "gnomon.indexer" if name in _OF_SPARK else _MODULES.get(name, "gnomon.shadow")
    if name in _OF_JOBS and not importlib.import_module("gnomon.jobs.build").has_spark():
        module = _OF_JOBS[name]  # the same job, for this process alone
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        extra = {"gnomon.indexer": "spark", "gnomon.service": "service"}.get(".".join(module.split(".")[:2]))
        if extra is None or (error.name or "").partition(".")[0] == "gnomon":
            raise
        install = f"which is not installed: pip install 'gnomon-index[{extra}]'"
        raise ModuleNotFoundError(f"gnomon.{name} needs the package {error.name}, {install}", name=error.name) from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


if not TYPE_CHECKING:  # with it, a type checker would accept any name
    __getattr__ = _imported
