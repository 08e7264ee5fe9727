"""Loops over bytes, compiled or in Python, with the same results. Pages of Parquet: `_kernel.pyx` or `kernel_python`.
Avro records: `_records.pyx` or `records_python`. Keys: `_hashes.pyx` or `hashes_python`.

The compiled modules are an option of the build: pip makes them where it finds a C compiler, and a wheel contains them.
`COMPILED` and `STATE` say which this process uses. `RecordKeys` exists only if they are compiled.
`GNOMON_KERNEL=python` chooses Python, for tests. docs/internals/kernel.md has the trial that led to Cython."""

import importlib
import os
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

from gnomon.base import hashes_python, kernel_python, records_python
from gnomon.base.hashes_python import (
    hash_key,
    may_hold,
    murmur3,
    murmur3_texts,
    murmur3_words,
    xxh64_texts,
    xxh64_words,
)
from gnomon.base.kernel_python import (
    FRAGMENT,
    byte_array_marks,
    byte_arrays,
    hybrid_flags,
    hybrid_marks,
    hybrid_values,
    unpack_fragments,
    unpack_snappy,
)
from gnomon.base.later import Later
from gnomon.base.records_python import block_frames, locate, record_columns

if TYPE_CHECKING:
    from importlib import resources
else:
    resources = Later("importlib.resources")

__all__ = [
    "COMPILED",
    "FRAGMENT",
    "NAMES",
    "STATE",
    "VARIABLE",
    "block_frames",
    "byte_array_marks",
    "byte_arrays",
    "hash_key",
    "hybrid_flags",
    "hybrid_marks",
    "hybrid_values",
    "locate",
    "may_hold",
    "murmur3",
    "murmur3_texts",
    "murmur3_words",
    "record_columns",
    "unpack_fragments",
    "unpack_snappy",
    "xxh64_texts",
    "xxh64_words",
]

VARIABLE = "GNOMON_KERNEL"
NAMES = tuple(name for name in __all__ if name.islower())  # the loops
TWINS = {
    "gnomon.base._hashes": hashes_python,
    "gnomon.base._kernel": kernel_python,
    "gnomon.base._records": records_python,
}


def _compiled() -> list[ModuleType]:
    """The compiled modules; empty unless all of them exist and have the version of this code."""
    load = _from_archive if isinstance(globals().get("__loader__"), zipimporter) else importlib.import_module
    try:
        found = {name: load(name) for name in TWINS}
    except (ImportError, OSError):
        return []
    right = all(getattr(found[name], "VERSION", None) == twin.VERSION for name, twin in TWINS.items())
    return list(found.values()) if right else []


def _from_archive(name: str) -> ModuleType:
    """A compiled module of a zip archive, which executors get from `gnomon.ship`. Python cannot import it from there,
    so it is loaded from a temporary file, which is not needed afterwards."""
    package, _, stem = name.rpartition(".")
    for suffix in EXTENSION_SUFFIXES:
        entry = resources.files(package) / f"{stem}{suffix}"
        if entry.is_file():
            with resources.as_file(entry) as path:
                loader = ExtensionFileLoader(name, str(path))
                module = module_from_spec(ModuleSpec(name, loader, origin=str(path)))
                loader.exec_module(module)
                return module
    raise ImportError(f"the archive has no {stem} for this Python")


_switched_off = os.environ.get(VARIABLE) == "python"
_found = [] if _switched_off else _compiled()
COMPILED = bool(_found)
if COMPILED:
    STATE = "compiled"
elif _switched_off:
    STATE = f"in Python, slower: {VARIABLE}=python"
else:
    STATE = "in Python, slower: pip found no C compiler when it built Gnomon"
RecordKeys: Any = _found[-1].RecordKeys if _found else None
for _module in _found:
    globals().update({name: getattr(_module, name) for name in NAMES if hasattr(_module, name)})
