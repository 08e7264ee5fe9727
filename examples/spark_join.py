"""Spark join: the rows of many keys from an index, without a shuffle of the index or of the source.

Needs `pip install 'gnomon-index[spark]'` and Java 17 or later."""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import gnomon


def run(spark: SparkSession, folder: Path) -> None:
    source, index = folder / "crawl", folder / "index"
    crawl = spark.range(20_000).select(
        F.format_string("https://site.example/%d", "id").alias("url"),
        F.repeat(F.lit("text "), 50).alias("html"),
        F.when(F.col("id") < 10_000, "2026-01-01").otherwise("2026-01-02").alias("dt"),
    )
    crawl.write.partitionBy("dt").parquet(str(source))
    built = gnomon.build(spark, source, index, ["url"])
    print(f"Indexed {built.rows} pages in {built.index_files} index files")

    wanted = spark.range(0, 25_000, 50).select(F.format_string("https://site.example/%d", "id").alias("url"))
    rows = gnomon.load(spark, index, wanted, columns=["html", "dt"])
    print(f"Loaded {rows.count()} rows of {wanted.count()} keys")

    # The pointers alone: filter and join them first, and read the source last.
    pointers = gnomon.join_with_index(spark, index, wanted).where("dt = '2026-01-02'")
    late = gnomon.load_by_index(spark, index, pointers, columns=["html"])
    print(f"Loaded {late.count()} of them in the second partition")

    gnomon.register(spark)
    spark.read.format("gnomon").load(str(index)).createOrReplaceTempView("crawl_index")
    found = spark.sql("SELECT count(*) AS pages FROM crawl_index WHERE url = 'https://site.example/7'").first()
    print("By SQL:", found)


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers run this Python, which has Gnomon
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    with tempfile.TemporaryDirectory() as made:
        run(session, Path(made))
    session.stop()
