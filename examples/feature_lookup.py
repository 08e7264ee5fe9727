"""Feature look-up: the features of many users, as Arrow, Polars and numpy, in the order of the request."""

import random
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import gnomon

USERS, FEATURES = 50_000, 8


def write_features(folder: Path) -> None:
    """One row of features for each user, in five files."""
    folder.mkdir()
    values = np.random.default_rng(1).normal(size=(USERS, FEATURES)).astype(np.float32)
    columns = {f"f{n}": values[:, n] for n in range(FEATURES)}
    users = pa.table({"user": pa.array(range(USERS), pa.int64()), **columns})
    for number in range(5):
        pq.write_table(users.slice(number * 10_000, 10_000), folder / f"part-{number}.parquet")


with tempfile.TemporaryDirectory() as made:
    features, index = Path(made, "features"), Path(made, "index")
    write_features(features)
    gnomon.build(None, features, index, ["user"])
    asked = random.Random(2).sample(range(USERS + 100), 1_000)  # a few of them are unknown

    with gnomon.open_index(index) as opened:
        begin = time.perf_counter()
        table = opened.table_many(asked, columns=[f"f{n}" for n in range(FEATURES)])
        milliseconds = (time.perf_counter() - begin) * 1_000
        print(f"Arrow: {table.num_rows} rows of {len(asked)} users in {milliseconds:.0f} ms")

        frame = pl.DataFrame(table)
        print("Polars: the mean of f0 is", frame.select(pl.col("f0").mean().round(3)).item())

        # numpy: a row for each user of the request, NaN for a user who is unknown
        matrix = np.full((len(asked), FEATURES), np.nan, dtype=np.float32)
        places = table["key_number"].to_numpy()
        matrix[places] = np.column_stack([table[f"f{n}"].to_numpy() for n in range(FEATURES)])
        unknown = int(np.isnan(matrix[:, 0]).sum())
        print(f"numpy: a matrix of {matrix.shape[0]} x {matrix.shape[1]}, {unknown} rows of unknown users")
        assert unknown == sum(user >= USERS for user in asked)

        few = gnomon.scan_polars(index).filter(pl.col("user").is_in(asked[:3])).select("user", "f0", "f1")
        print("Polars, lazily:", few.collect().height, "rows by a filter on the key")
