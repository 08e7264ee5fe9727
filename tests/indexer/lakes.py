"""Small sources, and their indexes made without Spark, for tests of Spark's reads of an index."""

import datetime as dt
import math
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.shadow.make_index import index_source, write_source

NTZ = [dt.datetime(2026, 3, 8, hour, 30) for hour in range(3)]  # New York skips an hour that day
INSTANTS = [moment.replace(microsecond=1) for moment in NTZ]
# Of each key type: its Arrow type, values, and the same in SQL.
VALUES: dict[str, tuple[pa.DataType, list[object], list[str]]] = {
    "a_string": (pa.string(), ["é ", "", None], ["'é '", "''"]),
    "a_boolean": (pa.bool_(), [True, False, None], ["true", "false"]),
    "a_byte": (pa.int8(), [-128, 127, None], ["-128Y", "127"]),
    "an_int": (pa.int32(), [-1, 2**31 - 1, 0], ["-1", "2147483647L", "0"]),
    "a_long": (pa.int64(), [-(2**63), 2**53 + 1, 0], ["-9223372036854775808", "9007199254740993", "0"]),
    "a_float": (pa.float32(), [0.5, math.nan, -0.0], ["0.5F", "float('NaN')", "float(0)"]),
    "a_double": (pa.float64(), [-0.0, 0.1, math.nan], ["0D", "0.1D", "double('NaN')"]),
    "a_date": (
        pa.date32(),
        [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1)],
        ["date'0001-01-01'", "date'9999-12-31'", "'1970-01-01'"],
    ),
    "an_instant": (pa.timestamp("us", "UTC"), INSTANTS, [f"timestamp'{moment}Z'" for moment in INSTANTS]),
    "a_time": (pa.timestamp("us"), NTZ, [f"timestamp_ntz'{moment}'" for moment in NTZ]),
    "a_decimal": (
        pa.decimal128(20, 2),
        [Decimal("-1.50"), Decimal("123456789012345678.99"), Decimal("0.00")],
        ["-1.5", "123456789012345678.990BD", "0"],
    ),
    "a_binary": (pa.binary(), [b"\x00\xff", b"", b"a"], ["X'00FF'", "X''", "X'61'"]),
}


def every_type(root: Path) -> None:
    """Rows of three values of each type, as one key, in two files; one of the rows has nulls."""
    table = pa.table({name: pa.array(values, arrow) for name, (arrow, values, _) in VALUES.items()})
    table = table.append_column("n", pa.array([0, 1, 2], pa.int32()))
    write_source(root / "source", {"a.parquet": table, "b.parquet": pa.concat_tables([table, table.slice(1)])})
    index_source(root / "source", root / "index", list(VALUES), buckets=3, include=["n"])


def predicates_of_every_type() -> list[str]:
    """For each type, a predicate that finds each row, and one that finds the rows without a null."""
    each = [
        " and ".join(
            f"{name} = {sql[i]}" if i < len(sql) else f"{name} is null" for name, (_, _, sql) in VALUES.items()
        )
        for i in range(3)
    ]
    return [*each, " and ".join(f"{name} in ({sql[0]}, {sql[1]})" for name, (_, _, sql) in VALUES.items())]


def crawl(root: Path, keys: list[str], flat: bool, buckets: int = 4) -> None:
    """Four partitions (one of null) of rows with duplicate keys, nulls and NaN in both key columns, in several
    segments; one file was rewritten and one was removed since they were first indexed."""
    first = {f"dt={day}/p{i}.parquet": _rows(day, i) for i, day in enumerate(["2026-01-01", "2026-01-02", "x y"])}
    write_source(root / "source", first | {"dt=2026-01-01/gone.parquet": _rows("gone", 7)})
    index_source(root / "source", root / "index", keys, buckets, ["n"], flat)
    (root / "source/dt=2026-01-01/gone.parquet").unlink()
    write_source(
        root / "source",
        {
            "dt=2026-01-02/p1.parquet": _rows("anew", 9).slice(0, 40),
            "dt=2026-01-02/p8.parquet": _rows("2026-01-02", 8),
            "dt=__HIVE_DEFAULT_PARTITION__/p3.parquet": _rows("null", 3),
        },
    )
    index_source(root / "source", root / "index", keys, buckets, ["n"], flat)


def _rows(word: str, salt: int) -> pa.Table:
    numbers = range(60)
    return pa.table(
        {
            "url": pa.array([None if i % 11 == 0 else f"https://é/{i * (salt + 1) % 25}" for i in numbers]),
            "x": pa.array([[None, math.nan, -0.0, 0.0, 1.5, -2.0, 7.25][i * 3 % 7] for i in numbers], pa.float64()),
            "n": pa.array([i + 1000 * salt for i in numbers], pa.int32()),
            "L x.y": pa.array([f"{word} {i}" for i in numbers]),
        }
    )


def plain(spark: SparkSession, root: Path) -> DataFrame:
    """The source as Spark reads it, with the place of each row in its file. Filters run on read values, since the
    filters of Spark's Parquet reader miss NaN, and one zero if the query has the other."""
    rows = (
        spark.read.option("datetimeRebaseMode", "CORRECTED")
        .parquet(f"{root}/source")
        .select("*", F.col("_metadata.row_index").alias("data_offset"))
    )
    return rows.localCheckpoint()


def comparable(rows: Iterable[Row]) -> list[str]:
    """Rows in a fixed order; both zeros are equal, as in SQL."""
    return sorted(str([0.0 if value == 0 and isinstance(value, float) else value for value in row]) for row in rows)


def explained(frame: DataFrame) -> str:
    """The output of EXPLAIN FORMATTED for a query."""
    text: str = frame._sc._jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "formatted")
    return text
