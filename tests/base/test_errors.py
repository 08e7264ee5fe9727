"""An error composes its text from its fields, and survives pickle and JSON. The table of actions names commands and
options that the command line has, and nothing else gives such advice."""

import ast
import copy
import pickle
import re
from pathlib import Path

import pytest

from gnomon.__main__ import COMMANDS, Commands
from gnomon.base.errors import Action, GnomonError
from gnomon.btree.errors import DamagedIndexFile, KeyTypeError

PATH = "/lake/team: search/at byte 7: x; y.avro"
ROOT = Path(__file__).parent.parent.parent
ROOMS = ("btree", "indexer", "service", "gnomon")
PRODUCT = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
ERRORS = {name for path in PRODUCT for name in re.findall(r"^class (\w+)\(", path.read_text(), re.MULTILINE)}
CALL = re.compile(r"gnomon ([a-z]+)(?=[ ,]|$)([^,;]*)")
OPTION = re.compile(r"--[a-z-]+")
ADVICE = re.compile(r"run gnomon|; (?:rebuild|restore|index it|run it again|upgrade)\b")
# Their commands hold what the caller asked for: names of columns, numbers of buckets.
WITH_VALUES = {"SpecMismatch"}


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


def _options(command: str) -> set[str]:
    found = Commands(name="gnomon").get_command(None, command)
    return {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("action", Action)
def test_an_action_names_commands_and_options_of_the_command_line(action: Action) -> None:
    calls = CALL.findall(action.value)
    for command, rest in calls:
        assert command in COMMANDS
        assert set(OPTION.findall(rest)) <= _options(command), action.value
    assert bool(calls) or not OPTION.search(action.value)


def test_every_action_is_used() -> None:
    text = "".join(path.read_text() for path in PRODUCT)
    assert [action.name for action in Action if f"Action.{action.name}" not in text] == []


def test_no_two_actions_say_the_same() -> None:
    assert len({action.value for action in Action}) == len(Action.__members__)


def test_an_error_is_given_its_advice_as_an_action() -> None:
    found = []
    for path in PRODUCT:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ERRORS - WITH_VALUES:
                texts = [str(one.value) for one in ast.walk(node) if isinstance(one, ast.Constant)]
                if any(map(ADVICE.search, texts)):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []
