"""The table of actions names commands and options that the command line has, and nothing else gives such advice."""

import ast
import re
from pathlib import Path

import pytest

from gnomon.__main__ import COMMANDS, Commands
from gnomon.base.errors import Action

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("btree", "indexer", "service", "gnomon")
PRODUCT = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
ERRORS = {name for path in PRODUCT for name in re.findall(r"^class (\w+)\(", path.read_text(), re.MULTILINE)}
CALL = re.compile(r"gnomon ([a-z]+)(?=[ ,]|$)([^,;]*)")
OPTION = re.compile(r"--[a-z-]+")
ADVICE = re.compile(r"run gnomon|; (?:rebuild|restore|index it|run it again|upgrade)\b")
# Their commands hold what the caller asked for: names of columns, numbers of buckets.
WITH_VALUES = {"SpecMismatch"}


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
