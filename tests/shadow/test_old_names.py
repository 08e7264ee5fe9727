"""Old names of functions and arguments do what the new ones do, and warn."""

from pathlib import Path

import pyarrow as pa
import pytest

from gnomon.shadow.maintenance import compaction
from gnomon.shadow.old_names import under_old_name
from gnomon.shadow.storage import storage_at
from tests.shadow.make_index import index_source, write_source


@pytest.mark.parametrize("value", [True, False])
def test_a_value_under_an_old_name_is_taken_with_a_warning_at_the_caller(value: bool) -> None:
    def call(old: bool | None = None, new: bool = False) -> bool:
        return under_old_name("old", old, "new", new)

    with pytest.warns(DeprecationWarning, match="^old= is now new=; the old name is accepted") as warned:
        assert call(old=value) is value
    assert warned[0].filename == __file__
    assert call(new=value) is value


def test_an_argument_under_both_names_is_refused() -> None:
    with pytest.raises(TypeError, match="old is the old name of new: expected one of the two"):
        under_old_name("old", False, "new", True)


def test_the_old_name_of_rebucket_does_the_same_with_a_warning(tmp_path: Path) -> None:
    write_source(tmp_path / "source", {"a.parquet": pa.table({"k": range(10)})})
    index_source(tmp_path / "source", tmp_path / "index", ["k"], buckets=2)
    with pytest.warns(DeprecationWarning, match="^rebuild is now rebucket; the old name is accepted"):
        assert compaction.rebuild(storage_at(str(tmp_path / "index")), 3).buckets == 3
