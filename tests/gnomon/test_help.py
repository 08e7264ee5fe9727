"""The help of each command ends with an example that its own options understand."""

import shlex

import pytest
import typer

from gnomon.__main__ import COMMANDS, Commands, app, main


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.endswith(f"Example: {COMMANDS[name].example}") or told.replace("- ", "-").endswith(
        COMMANDS[name].example
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_is_a_call_that_the_command_understands(name: str) -> None:
    program, command, *arguments = shlex.split(COMMANDS[name].example.partition(" >> ")[0])
    assert (program, command) == ("gnomon", name)
    group = typer.main.get_command(app)
    assert isinstance(group, Commands)
    parsed = group.get_command(None, name).make_context(name, arguments, resilient_parsing=False)
    assert parsed.params
