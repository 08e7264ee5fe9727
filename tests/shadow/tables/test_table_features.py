"""Each feature of a table is read right, does not matter to readers, or is refused by its name: none falls through."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from gnomon import build, open_index
from gnomon.shadow import UsageError
from gnomon.shadow.tables.delta import READ_FEATURES

# The features of Delta's protocol and of its proposals of which readers must know, except those that are read.
UNREAD = ["catalogManaged", "catalogOwned-preview", "geospatial", "collations", "adaptiveMetadata", "somethingNew"]
OF_WRITERS = [
    *("allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "clustering", "domainMetadata"),
    *("generatedColumns", "icebergCompatV1", "icebergCompatV2", "icebergCompatV3", "icebergWriterCompatV1"),
    *("identityColumns", "inCommitTimestamp", "invariants", "materializePartitionColumns", "rowTracking"),
    "somethingNewOfWriters",
]


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / "delta", pa.table({"k": [1, 2]}))
    return tmp_path / "delta"


def upgraded(table: Path, features: list[str], of_writers: list[str], reader: int = 3) -> None:
    """A commit with another protocol, as an engine makes it."""
    protocol = {"minReaderVersion": reader, "minWriterVersion": 7, "writerFeatures": [*features, *of_writers]}
    protocol |= {"readerFeatures": features} if reader == 3 else {}
    number = len(list((table / "_delta_log").glob("*.json")))
    (table / "_delta_log" / f"{number:020d}.json").write_text(json.dumps({"protocol": protocol}))


def indexed(table: str, root: Path) -> list[int]:
    build(None, table, str(root / "index"), ["k"])
    return [row["k"] for row in open_index(str(root / "index")).range()]


@pytest.mark.parametrize("feature", sorted(READ_FEATURES))
def test_a_table_with_a_known_feature_is_read(delta: Path, tmp_path: Path, feature: str) -> None:
    upgraded(delta, [feature], [])
    assert indexed(f"delta:{delta}", tmp_path) == [1, 2]


@pytest.mark.parametrize("feature", OF_WRITERS)
def test_a_feature_of_writers_does_not_matter_to_readers(delta: Path, tmp_path: Path, feature: str) -> None:
    upgraded(delta, [], [feature])
    assert indexed(f"delta:{delta}", tmp_path) == [1, 2]


@pytest.mark.parametrize("feature", UNREAD)
def test_a_feature_that_readers_must_know_is_refused_by_name(delta: Path, tmp_path: Path, feature: str) -> None:
    upgraded(delta, [feature, "inCommitTimestamp"][:1], ["inCommitTimestamp"])
    name = "catalogManaged" if feature.startswith("catalog") else feature
    with pytest.raises(UsageError, match=f"the table has the feature {name}.*; Gnomon .* upgrade gnomon") as error:
        indexed(f"delta:{delta}", tmp_path)
    assert str(delta) in str(error.value)


@pytest.mark.parametrize("feature", UNREAD)
def test_an_upgrade_is_seen_by_a_build_and_by_a_reader_of_the_newest_version(
    delta: Path, tmp_path: Path, feature: str
) -> None:
    """Also where all later commits lie elsewhere, so that no further file of the log comes: the upgrade is one."""
    assert indexed(f"delta:{delta}", tmp_path) == [1, 2]
    upgraded(delta, [feature], ["inCommitTimestamp"])
    with pytest.raises(UsageError, match="the table has the feature"):
        indexed(f"delta:{delta}", tmp_path)
    with pytest.raises(UsageError, match="the table has the feature"):
        open_index(str(tmp_path / "index"), newest=True).fetch(1)
    assert open_index(str(tmp_path / "index")).fetch(1) == [{"k": 1}]


def test_another_version_of_the_protocol_is_refused(delta: Path, tmp_path: Path) -> None:
    upgraded(delta, [], [], reader=4)
    with pytest.raises(UsageError, match="another version of the protocol"):
        indexed(f"delta:{delta}", tmp_path)


def _with(**members: Any) -> Callable[[dict[str, Any]], None]:
    return lambda metadata: metadata.update({name.replace("_", "-"): value for name, value in members.items()})


def _with_column(kind: str) -> Callable[[dict[str, Any]], None]:
    def change(metadata: dict[str, Any]) -> None:
        metadata |= {"format-version": 3, "next-row-id": 0}
        metadata["schemas"][0]["fields"].append({"id": 9, "name": "c", "required": False, "type": kind})

    return change


ICEBERG: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "format version 4, with its column files": (
        _with(format_version=4),
        "the table has format version 4.* reads 1 to 3",
    ),
    "a later format version": (_with(format_version=11), "the table has format version 11"),
    "a variant": (_with_column("variant"), "'variant'.* does not read it"),
    "a geometry": (_with_column("geometry(OGC:CRS84)"), "does not read it: Could not parse geometry"),
    "a type of the future": (_with_column("quaternion"), "'quaternion'.* does not read it"),
    "a member of the future": (_with(something_new={"a": 1}), ""),
    "keys for encryption that no file has": (
        _with(format_version=3, next_row_id=0, encryption_keys=[{"key-id": "a", "encrypted-key-metadata": "YQ=="}]),
        "",
    ),
}


@pytest.mark.parametrize("name", ICEBERG)
def test_an_iceberg_table_is_read_right_or_refused_by_what_is_unknown(tmp_path: Path, name: str) -> None:
    change, refused = ICEBERG[name]
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", pa.schema([("k", pa.int64())]))
    table.append(pa.table({"k": [1, 2]}))
    file = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    change(metadata)
    file.write_text(json.dumps(metadata))
    if refused:
        with pytest.raises(UsageError, match=f"{refused}.*upgrade gnomon"):
            indexed(f"iceberg:{file}", tmp_path)
    else:
        assert indexed(f"iceberg:{file}", tmp_path) == [1, 2]
