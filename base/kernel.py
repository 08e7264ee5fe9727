"""Loops over bytes that Gnomon compiles where it can: `_kernel.pyx`, or else `kernel_python`, with the same answers.

The compiled module is an option of the build: pip makes it where it finds a C compiler, and a wheel contains it.
`COMPILED` and `STATE` say which of the two this process uses. `GNOMON_KERNEL=python` chooses the Python one, for tests.
docs/internals/kernel.md has the trial that led to Cython."""

import importlib
import os
from types import ModuleType

from gnomon.base import kernel_python
from gnomon.base.kernel_python import (
    FRAGMENT,
    byte_array_marks,
    byte_array_span,
    hybrid_flags,
    hybrid_values,
    unpack_fragments,
    unpack_snappy,
)

__all__ = [
    "COMPILED",
    "FRAGMENT",
    "NAMES",
    "STATE",
    "VARIABLE",
    "byte_array_marks",
    "byte_array_span",
    "hybrid_flags",
    "hybrid_values",
    "unpack_fragments",
    "unpack_snappy",
]

VARIABLE = "GNOMON_KERNEL"
NAMES = tuple(name for name in __all__ if name.islower())  # the loops


def _compiled() -> ModuleType | None:
    """The compiled module; None where there is none, or one of another version of Gnomon."""
    try:
        found = importlib.import_module("gnomon.base._kernel")
    except ImportError:
        return None
    return found if getattr(found, "VERSION", None) == kernel_python.VERSION else None


_switched_off = os.environ.get(VARIABLE) == "python"
_found = None if _switched_off else _compiled()
COMPILED = _found is not None
if COMPILED:
    STATE = "compiled"
elif _switched_off:
    STATE = f"in Python, slower: {VARIABLE}=python"
else:
    STATE = "in Python, slower: pip found no C compiler when it built Gnomon"
if _found is not None:
    globals().update({name: getattr(_found, name) for name in NAMES})
