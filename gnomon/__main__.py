"""`gnomon COMMAND ...` and `python -m gnomon COMMAND ...`."""

import importlib
import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from gnomon.failures import FAILED, INTERRUPTED, WRONG_USAGE, exit_code, one_line
from shadow import UsageError

# Command: the module that holds it as `app`, and its line in the help.
COMMANDS = {
    "build": ("gnomon.build", "Bring an index up to date with its source."),
    "get": ("gnomon.get", "Print the rows of keys as JSON lines."),
    "load": ("gnomon.load", "Write the rows of many keys to Parquet, with Spark."),
    "dedup": ("gnomon.dedup", "Append the rows whose key was never loaded."),
    "serve": ("gnomon.serve", "Answer GET /rows/<key> over HTTP."),
    "token": ("gnomon.token", "Make a bearer token for the service."),
    "inspect": ("gnomon.inspect", "Show keys, rows, buckets, partitions, coverage."),
    "history": ("gnomon.history", "Show the snapshots that are kept."),
    "verify": ("gnomon.verify", "Prove that an index is whole and its pointers are right."),
    "compact": ("gnomon.compact", "Merge small segments, and drop entries that no longer count."),
    "vacuum": ("gnomon.vacuum", "Remove what no kept snapshot needs."),
    "rebuild": ("gnomon.rebuild", "Change the number of buckets."),
    "demo": ("gnomon.demo", "Do all of it on a web crawl made here."),
}


class Commands(TyperGroup):
    """A group that imports a command's module when the command is called, and not to list it."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, summary = COMMANDS[cmd_name]
        if self._listing:
            return TyperCommand(cmd_name, help=summary, short_help=summary)
        command = typer.main.get_command(importlib.import_module(module).app)
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


app = typer.Typer(cls=Commands, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback(help="A shadow index for data-lake files: one row by its key, many rows by key, dedup by key.")
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; may stand anywhere.")] = False,
) -> None:
    """--debug is here for the help: it is taken out before parsing, so that it may stand anywhere."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done or found, 1 a key not found, 2 wrong usage, 3 anything else."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # JSON lines are UTF-8 whatever the terminal speaks
    words = list(sys.argv[1:] if arguments is None else arguments)
    options_end = words.index("--") if "--" in words else len(words)
    debug = "--debug" in words[:options_end]
    if debug:
        words.remove("--debug")
    try:
        _check_folder()
        result = typer.main.get_command(app).main(words or ["--help"], prog_name="gnomon", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except typer.Exit as done:
        code = done.exit_code
    except TyperException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "gnomon"
        message = " ".join(error.format_message().split()).removesuffix(".")
        print(f"{where}: {message}; see {where} --help", file=sys.stderr)
        code = WRONG_USAGE
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:  # whoever read our output had enough
        sys.stderr.close()
        code = FAILED
    except Exception as error:
        if debug:
            raise
        print(f"gnomon: {one_line(error)}", file=sys.stderr)
        code = exit_code(error)
    if arguments is None:
        sys.exit(code)
    return code


def _check_folder() -> None:
    """Relative paths, and Java, need a current folder."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current folder was removed; change to one that exists") from None


if __name__ == "__main__":
    main()
