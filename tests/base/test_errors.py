import copy
import pickle

import pytest

from gnomon.base.errors import Action, GnomonError
from gnomon.btree.errors import DamagedIndexFile, KeyTypeError

PATH = "/lake/team: search/at byte 7: x; y.avro"


def full() -> GnomonError:
    return GnomonError(
        "bad block", PATH, 4711, column="a: b", expected="CRC 1", found="CRC 2", action=Action.BUILD_FULL
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (full(), f"{PATH} at byte 4711: column a: b: bad block: expected CRC 1, found CRC 2; {Action.BUILD_FULL}"),
        (GnomonError("gone"), "gone"),
        (GnomonError("gone", "/a"), "/a: gone"),
        (GnomonError("gone", "/a", 0), "/a at byte 0: gone"),
        (GnomonError("", "/a", 3, expected="9 bytes", found=4), "/a at byte 3: expected 9 bytes, found 4"),
        (GnomonError("no columns", expected="one or more"), "no columns; expected one or more"),
        (GnomonError("", expected="a header"), "expected a header"),
        (GnomonError("required", column="k", found="a null"), "column k: required: found a null"),
        (GnomonError("changed", "/a", action=Action.RUN_AGAIN), f"/a: changed; {Action.RUN_AGAIN}"),
        (KeyTypeError("k", "int", "x", " or text"), "key column k: expected int or text, found 'x'"),
    ],
    ids=str,
)
def test_the_text_is_composed_from_the_fields(error: GnomonError, text: str) -> None:
    assert str(error) == text


def test_a_value_that_was_found_is_shown_on_one_line_of_at_most_80_characters() -> None:
    found = GnomonError("value", found="a\n b" + "x" * 100).found
    assert found is not None
    assert (found[:5], len(found), found[-3:]) == ("a bxx", 80, "...")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_copy_has_the_fields_and_the_attributes(copied: object) -> None:
    error = full()
    error.add_note("seen in a test")
    again = copied(error)  # type: ignore[operator]
    assert (type(again), str(again), again.__dict__) == (GnomonError, str(error), error.__dict__)
    assert again.__notes__ == ["seen in a test"]


def test_json_gives_the_error_again() -> None:
    error = DamagedIndexFile(
        "bad: block", PATH, 4711, column="k", expected=1, found=b"\xff", action=Action.WRITE_VALUES
    )
    again = GnomonError.from_json(error.to_json())
    assert (type(again), str(again), again.__dict__) == (DamagedIndexFile, str(error), error.__dict__)


def test_json_of_a_class_that_is_not_loaded_gives_its_nearest_base_class() -> None:
    content = full().to_json()
    content["types"] = ["OfALaterVersion", "DamagedIndexFile", "BTreeError", "GnomonError"]
    content["action"] = "OF_A_LATER_VERSION"
    again = GnomonError.from_json(content)
    assert (type(again), again.path, again.offset, again.action) == (DamagedIndexFile, PATH, 4711, None)


def test_other_fields_make_a_copy_with_the_same_cause() -> None:
    error = full()
    error.__cause__ = ValueError("the cause")
    other = error.with_fields(action=Action.RESTORE)
    assert (other.__cause__, other.action, error.action) == (error.__cause__, Action.RESTORE, Action.BUILD_FULL)
    assert other.path == error.path


def test_an_error_is_one_line_that_still_names_its_file() -> None:
    error = GnomonError("broken\r\n  here\u2028now", "/lake/a\nb\x1b[31m", expected="one\nline")
    assert str(error) == "/lake/a\\nb\\x1b[31m: broken here now; expected one line"
