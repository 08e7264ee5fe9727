"""An append to a catalog table is refused where Spark would register its partitions under other values."""

from dataclasses import replace

import pytest

from gnomon.indexer.dedup.append import check_zone
from gnomon.shadow import UsageError
from gnomon.shadow.metadata import IndexSpec, KeyColumn, source_named


def test_moments_of_partitions_need_a_session_in_utc() -> None:
    types = {"day": "date", "at": "timestamp"}
    keys = (KeyColumn("id", "bigint"),)
    spec = IndexSpec(source_named("/t", "db.t"), "parquet", tuple(types), keys, (), 1, partition_types=types)
    check_zone(spec, "UTC")
    check_zone(replace(spec, partitions=("day",), partition_types={"day": "date"}), "Asia/Tokyo")
    with pytest.raises(UsageError, match=r"partition column at is timestamp.* of the session, Asia/Tokyo; set spark"):
        check_zone(spec, "Asia/Tokyo")
