"""`gnomon COMMAND ...` and `python -m gnomon COMMAND ...`."""

import gc
import importlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from gnomon.commands.exit_codes import FAILED, INTERRUPTED, WRONG_USAGE, MissingExtra


class Command(NamedTuple):
    """A command: its module, which has it as `app`, its line in the help, an example, and the extra that it needs, if
    any."""

    module: str
    summary: str
    example: str
    extra: str = ""


# Arrow's own, mimalloc, takes jobs a quarter more memory and a sixth more time. Commands that answer for days keep it.
MEMORY_POOL, SERVERS = "system", {"serve", "catalog", "mcp"}
COMPLETING = "_GNOMON_COMPLETE"  # the variable of the command line library
CHECKERS_WORDS = (
    ("Value error, ", ""),
    ("Input should be a valid integer, unable to parse string as an integer", "expected a whole number"),
    ("Input should be a valid number, unable to parse string as a number", "expected a number"),
    ("Input should be greater than or equal to", "expected at least"),
    ("Input should be less than or equal to", "expected at most"),
    ("Input should be", "expected"),
)
TAKING_KEYS = ("get", "find", "delete")
COMMANDS = {
    "build": Command(
        "gnomon.commands.build",
        "Bring an index up to date with its source.",
        "gnomon build /lake/crawl /indexes/crawl --key url",
    ),
    "get": Command(
        "gnomon.commands.get",
        "Print the rows of keys as JSON lines.",
        "gnomon get /indexes/crawl 'https://example.org/a?b=c' --columns status,html --where dt=2026-01-01",
    ),
    "load": Command(
        "gnomon.commands.load",
        "Write the rows of many keys to Parquet.",
        "gnomon load /indexes/crawl keys.csv /tmp/rows",
    ),
    "dedup": Command(
        "gnomon.commands.dedup",
        "Append the rows whose key the source does not have.",
        "gnomon dedup /indexes/crawl /landing/batch-17 --report rejected.parquet",
    ),
    "delete": Command(
        "gnomon.commands.change",
        "Delete the rows of keys in a Delta or Iceberg table.",
        "gnomon delete /indexes/orders --keys forget.csv --dry-run",
    ),
    "upsert": Command(
        "gnomon.commands.change",
        "Replace and add rows by key in a Delta or Iceberg table.",
        "gnomon upsert /indexes/orders /landing/changes-17 --order-by seq --delete-where op",
    ),
    "convert-deletes": Command(
        "gnomon.commands.change",
        "Replace the equality deletes of an Iceberg table.",
        "gnomon convert-deletes /indexes/orders",
    ),
    "serve": Command(
        "gnomon.commands.serve",
        "Answer GET /rows/<key> over HTTP.",
        "gnomon serve /indexes/crawl --workers 2",
        "service",
    ),
    "catalog": Command(
        "gnomon.commands.catalog",
        "Plan the scans of Iceberg's engines through indexes.",
        "gnomon catalog /indexes/orders --upstream http://rest-catalog:8181",
        "catalog",
    ),
    "mcp": Command(
        "gnomon.commands.mcp",
        "Answer agents: the tools of an MCP server.",
        "gnomon mcp /indexes/crawl",
        "mcp",
    ),
    "token": Command(
        "gnomon.commands.token",
        "Make a bearer token for the service.",
        "gnomon token support-desk --file tokens",
    ),
    "inspect": Command(
        "gnomon.commands.inspect", "Show keys, rows, buckets, partitions, coverage.", "gnomon inspect /indexes/crawl"
    ),
    "history": Command("gnomon.commands.inspect", "Show the kept snapshots.", "gnomon history /indexes/crawl"),
    "find": Command(
        "gnomon.commands.find",
        "Find a key in all versions of a Delta or Iceberg table.",
        "gnomon find /indexes/orders 4711 --all-versions",
    ),
    "diff": Command(
        "gnomon.commands.compare", "Show the keys that one of two indexes has.", "gnomon diff /indexes/old /indexes/new"
    ),
    "unique": Command(
        "gnomon.commands.compare", "Show the keys that have several rows.", "gnomon unique /indexes/orders"
    ),
    "orphans": Command(
        "gnomon.commands.compare",
        "Show the keys that another index does not have.",
        "gnomon orphans /indexes/payments /indexes/orders",
    ),
    "import-dione": Command(
        "gnomon.commands.dione",
        "Take over an index that Dione made.",
        "gnomon import-dione table:lake.crawl_index /indexes/crawl",
    ),
    "export-dione": Command(
        "gnomon.commands.dione",
        "Write an index for Dione's readers.",
        "gnomon export-dione /indexes/crawl table:lake.crawl_index",
    ),
    "verify": Command(
        "gnomon.commands.verify",
        "Check that an index is whole and its pointers are right.",
        "gnomon verify /indexes/crawl --all",
    ),
    "compact": Command(
        "gnomon.commands.maintenance",
        "Merge small segments, and drop dead entries.",
        "gnomon compact /indexes/crawl",
    ),
    "vacuum": Command(
        "gnomon.commands.maintenance",
        "Remove files that no kept snapshot needs.",
        "gnomon vacuum /indexes/crawl --keep 7 --dry-run",
    ),
    "rebucket": Command(
        "gnomon.commands.maintenance",
        "Change the number of buckets, or the layout.",
        "gnomon rebucket /indexes/crawl --buckets 16 --flat",
    ),
    "demo": Command("gnomon.commands.demo", "Run all steps on a generated web crawl.", "gnomon demo --pages 20000"),
}
SHOWN_EXAMPLES = ("build", "get", "load", "serve")  # in the help of all commands


class Commands(TyperGroup):
    """A group that imports a command's module only when the command is called."""

    _listing = False

    @contextmanager
    def _listed(self) -> Iterator[None]:
        """A block in which commands have only their names and summaries."""
        self._listing = True
        try:
            yield
        finally:
            self._listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        known = COMMANDS[cmd_name]
        if self._listing:
            return TyperCommand(cmd_name, help=known.summary, short_help=known.summary)
        gc.disable()  # modules stay: looking for garbage among them costs a tenth of a short command
        try:
            command: Any = typer.main.get_command(importlib.import_module(known.module).app)
            if cmd_name in getattr(command, "commands", {}):  # of a module with several commands
                command = command.commands[cmd_name]
        except ModuleNotFoundError as error:
            if not known.extra or (error.name or "").partition(".")[0] in sys.modules:
                raise
            raise MissingExtra.of(cmd_name, error.name, known.extra) from None
        finally:
            gc.enable()
        command.name = cmd_name
        command.epilog = f"Example: {known.example}"
        return command

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        with self._listed():
            return super().shell_complete(ctx, incomplete)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._listed():
            super().format_help(ctx, formatter)
        examples = "".join(f"\n    {COMMANDS[name].example}" for name in SHOWN_EXAMPLES)
        formatter.write(f"\nExamples:\n{examples}\n")


def _print_version(asked: bool) -> None:
    if asked:
        # Imported here: the help needs neither numpy nor the parsers of mail that read the metadata of a package.
        version = importlib.import_module("importlib.metadata").version("gnomon-index")
        print(f"gnomon {version}\ninner loops: {importlib.import_module('gnomon.base.kernel').STATE}")
        raise typer.Exit


app = typer.Typer(cls=Commands, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback(help="A shadow index for data-lake files: one row by its key, many rows by key, dedup by key.")
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; may stand anywhere.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """--debug is here for the help: `main` removes it before parsing, so that it may stand anywhere."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 success, 1 a key not found, 2 wrong usage, 3 any other error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # JSON lines are UTF-8, whatever the terminal's encoding
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = next((word for word in words if word in COMMANDS), "")
    if arguments is None and command not in SERVERS:  # before pyarrow is imported, also by processes of a command
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", MEMORY_POOL)
    options_end = words.index("--") if "--" in words else len(words)
    debug = "--debug" in words[:options_end]
    if debug:
        words.remove("--debug")
    try:
        Path.cwd()  # relative paths, and Java, need a current folder
    except FileNotFoundError:
        print("gnomon: the current folder was removed; change to one that exists", file=sys.stderr)
        return _ended(WRONG_USAGE, arguments)
    try:
        result = typer.main.get_command(app).main(words or ["--help"], prog_name="gnomon", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except typer.Exit as done:
        code = done.exit_code
    except TyperException as error:
        context = getattr(error, "ctx", None)
        named = " ".join(["gnomon", *(word for word in words[:1] if word in COMMANDS)])
        where = context.command_path if context else named
        message = _in_words(" ".join(error.format_message().split()).removesuffix(".")) + _alike(words)
        if "No such option" in message and words[0] in TAKING_KEYS:
            message += "; a key that begins with - stands after --"
        print(f"{where}: {message}; see {where} --help", file=sys.stderr)
        code = WRONG_USAGE
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:  # the reader of the output has ended
        sys.stderr.close()
        code = FAILED
    except MissingExtra as error:
        if COMPLETING in os.environ:  # a shell asks for words; a line on stderr would stand in the user's own
            return _ended(FAILED, arguments)
        print(f"gnomon: {error}", file=sys.stderr)
        code = FAILED
    except Exception as error:
        if debug:
            raise
        failures = importlib.import_module("gnomon.commands.failures")  # imports all packages with errors
        print(f"gnomon: {failures.one_line(error)}", file=sys.stderr)
        code = failures.exit_code(error)
    return _ended(code, arguments)


def _ended(code: int, arguments: list[str] | None) -> int:
    """End the process with a code, or return the code where a caller gave the arguments."""
    if arguments is None:
        sys.exit(code)
    return code


def _in_words(message: str) -> str:
    """The message of the command line library, with words of its checker of values in ours."""
    for theirs, ours in CHECKERS_WORDS:
        message = message.replace(theirs, ours)
    return message


def _alike(words: list[str]) -> str:
    """A similar command, if the first word is not a command."""
    found = get_close_matches(words[0], COMMANDS, 1) if words and words[0] not in COMMANDS else []
    return f"; did you mean {found[0]}?" if found else ""


if __name__ == "__main__":
    main()
