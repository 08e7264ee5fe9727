"""The kinds of index entries, which callers use in the same way."""

import inspect

import pyarrow as pa
import pytest

from gnomon.shadow.errors import UsageError
from gnomon.shadow.metadata.entry_kinds import POINTER_ENTRIES, POINTER_SCHEMA, VALUE_ENTRIES
from gnomon.shadow.metadata.manifests import Segment, SourceFileEntry
from gnomon.sources import Pointer

WRITTEN = SourceFileEntry("a/b", "p=1", 2, 10, 0, "")
SEGMENT = Segment("s", (), (WRITTEN,))


def test_both_kinds_have_the_same_members_and_signatures() -> None:
    members = [{name for name in vars(type(kind)) if name[:2] != "__"} for kind in (POINTER_ENTRIES, VALUE_ENTRIES)]
    assert members[0] == members[1]
    for name in members[0]:
        of_pointers, of_values = getattr(POINTER_ENTRIES, name), getattr(VALUE_ENTRIES, name)
        assert callable(of_pointers) == callable(of_values)
        if callable(of_pointers):
            assert inspect.signature(of_pointers) == inspect.signature(of_values), name


def test_an_entry_names_its_source_file_alone_and_in_a_column() -> None:
    values = ("x", "dt=1/c", 7, 0, 5)
    columns = [pa.array([value, value]) for value in values]
    assert POINTER_ENTRIES.file_name(SEGMENT, "p=1", values) == "dt=1/c"
    assert POINTER_ENTRIES.file_names(SEGMENT, "p=1", columns).to_pylist() == ["dt=1/c"] * 2
    assert POINTER_ENTRIES.pointer(values) == Pointer("dt=1/c", 7, 0, 5)
    assert VALUE_ENTRIES.file_name(SEGMENT, "p=1", values) == "a/b"
    assert VALUE_ENTRIES.file_names(SEGMENT, "p=1", columns).to_pylist() == ["a/b"] * 2


def test_only_pointers_have_source_files_and_pointer_columns() -> None:
    assert list(POINTER_ENTRIES.source_files(SEGMENT)) == [WRITTEN]
    assert not VALUE_ENTRIES.source_files(SEGMENT)
    assert (POINTER_ENTRIES.pointer_columns, VALUE_ENTRIES.pointer_columns) == (POINTER_SCHEMA, ())


def test_what_needs_a_source_is_refused_for_values_with_the_text_of_the_caller() -> None:
    POINTER_ENTRIES.check_source("no pointers", "/folder")
    with pytest.raises(UsageError, match=r"^/folder: no pointers$"):
        VALUE_ENTRIES.check_source("no pointers", "/folder")
    with pytest.raises(UsageError, match="needs a column beside the key"):
        VALUE_ENTRIES.check_included(())
