"""The engine of a command: Spark, or this process."""

import importlib
from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated, Any

import typer

from gnomon.commands.exit_codes import MissingExtra
from gnomon.jobs.build import Engine, LocalEngine, has_spark
from gnomon.shadow import UsageError

MOST_ROWS = 50_000_000  # most rows that a command with --engine auto indexes in this process


class EngineName(StrEnum):
    """The values of --engine."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help=f"local: on this machine, without Java. auto: Spark; without pyspark local, up to {MOST_ROWS:,} rows.",
    ),
]


def is_local(name: EngineName, master: str | None, conf: Sequence[str] | None) -> bool:
    """Whether a command runs in this process. UsageError for settings of Spark with --engine local."""
    settings = "--master" if master is not None else "--conf" if conf else ""
    if name is EngineName.LOCAL and settings:
        raise UsageError(f"{settings}: a setting of Spark, which --engine local does not start")
    return name is EngineName.LOCAL or (name is EngineName.AUTO and not has_spark() and not settings)


class Engines(ExitStack):
    """The engine of a command, which is started once, when it is first needed. A context manager, which ends Spark."""

    def __init__(self, command: str, name: EngineName, master: str | None, conf: Sequence[str] | None) -> None:
        super().__init__()
        self._command = command
        self.is_local = is_local(name, master, conf)
        self._most_rows = MOST_ROWS if name is EngineName.AUTO else None
        self._spark_settings = (master, conf)
        self._started: Engine | None = None
        self.session: Any = None  # the session of Spark, once it is started

    def started(self, hive: bool = False) -> Engine:
        """The engine. `hive` starts Spark with the catalog of a Hive metastore."""
        if self._started is None:
            self._started = self._start(hive)
        return self._started

    def read_table(self, source: str) -> Any:
        """A table of the catalog, as `Engine.read_table`."""
        return self.started(hive=True).read_table(source)

    def _start(self, hive: bool) -> Engine:
        if self.is_local:
            return LocalEngine(most_rows=self._most_rows)
        if not has_spark():
            raise MissingExtra.of(self._command, "pyspark", "spark")
        # Imported here: a command in this process does not need pyspark.
        session = importlib.import_module("gnomon.commands.spark").spark_session(*self._spark_settings, hive=hive)
        self.session = self.enter_context(session)
        engine: Engine = importlib.import_module("gnomon.indexer.build").SparkEngine(self.session)
        return engine
