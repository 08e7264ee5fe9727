"""Whether the leaves of nested columns agree on how many values there are. pyarrow decodes each leaf alone and takes
lists, maps and nulls from the first; of a leaf that has more entries it leaves the last ones over, and all others stand
in wrong rows. The lengths that tell are in Arrow's C data interface alone."""

import ctypes

import pyarrow as pa


class _Array(ctypes.Structure):
    """`ArrowArray` of the C data interface."""


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.c_void_p),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
]  # and more, which is not looked at

_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def check_agreement(batch: pa.RecordBatch) -> None:
    """ArrowInvalid where parts of one struct, or keys and values of a map, are not equally many."""
    if not any(pa.types.is_nested(kind) for kind in batch.schema.types):
        return
    _, capsule = batch.__arrow_c_array__()  # which frees what it holds
    found = _Array.from_address(_pointer(capsule, b"arrow_array"))
    for i, name in enumerate(batch.schema.names):
        _check(found.children[i].contents, name)


def _check(array: _Array, name: str) -> None:
    children = [array.children[i].contents for i in range(array.n_children)]
    lengths = [child.length for child in children]
    if len(set(lengths)) > 1:
        raise pa.ArrowInvalid(f"the leaves of {name!r} contradict each other: {lengths} values of one struct or map")
    for child in children:
        _check(child, name)
