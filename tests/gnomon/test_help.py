"""The help of each command ends with an example that its own options understand."""

import shlex

import pytest
import typer

from gnomon.__main__ import COMMANDS, OLD_COMMANDS, OLD_OPTIONS, Commands, app, main


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


def test_the_help_shows_new_names_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert not set(OLD_COMMANDS) & set(capsys.readouterr().out.split())
    for command, options in OLD_OPTIONS.items():
        assert main([command, "--help"]) == 0
        words = capsys.readouterr().out.split()
        assert not set(options) & set(words)
        assert set(options.values()) <= set(words)


def test_an_old_command_is_accepted_with_a_notice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rebuild", "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: gnomon rebucket ")
    assert err == "gnomon: rebuild is now rebucket; the old name is accepted through version 0.2\n"


def test_what_stands_behind_two_dashes_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "--", "a", "b", "--anew"]) == 2
    assert "is now" not in capsys.readouterr().err
