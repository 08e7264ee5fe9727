"""The spec of an index is read as it was written, and other content is an error."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnomon.btree.schema import AVRO_NAME
from gnomon.shadow.errors import DamagedMetadata, IndexNotFound, NewerFormat, SpecMismatch, UsageError
from gnomon.shadow.metadata import Folder, json_files, source_named
from gnomon.shadow.metadata.snapshots import SPEC_PATH, create_spec, put_back, read_spec
from gnomon.shadow.metadata.spec import (
    DEEP,
    IndexSpec,
    KeyColumn,
    check_columns,
    check_same,
    most_maps,
    parse_spec,
    spec_differences,
)
from gnomon.shadow.storage import Storage, storage_at

SPEC = IndexSpec(
    source=Folder("/lake/crawl"),
    format="parquet",
    partitions=("dt", "Straße"),
    keys=(KeyColumn("url", "string"), KeyColumn("dt", "string", partition=True), KeyColumn("price", "decimal(10,2)")),
    include=(KeyColumn("status", "int"),),
    buckets=16,
)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return storage_at(str(tmp_path))


def rewritten(storage: Storage, change: Callable[[dict[str, Any]], object]) -> None:
    """Write SPEC with a change, with a valid checksum."""
    content = copy.deepcopy(SPEC.to_json())
    change(content)
    storage.put_new(SPEC_PATH, [json_files.encode(content)])


def test_a_spec_comes_back_as_written(storage: Storage) -> None:
    create_spec(storage, SPEC)
    assert read_spec(storage) == SPEC


def test_the_type_in_the_source_stands_in_the_spec_where_it_is_mapped(storage: Storage, tmp_path: Path) -> None:
    column = KeyColumn("id", "binary", source_type="uuid")
    spec = replace(SPEC, keys=(column,), include=(replace(SPEC.include[0], source_type="uint16"),))
    create_spec(storage, spec)
    assert read_spec(storage) == spec
    assert spec.to_json()["keys"] == [{"name": "id", "type": "binary", "source_type": "uuid", "column": "id"}]
    assert not any("source_type" in shown for shown in SPEC.to_json()["keys"])
    assert not spec.is_like(replace(spec, keys=(KeyColumn("id", "binary"),)))


def test_a_catalog_table_stands_in_the_spec_with_its_columns_and_the_types_of_its_partitions() -> None:
    table = replace(
        SPEC,
        source=source_named("/lake/crawl", "lake.crawl"),
        schema="url string",
        partition_types={"dt": "date", "Straße": "string"},
    )
    content = table.to_json()
    assert parse_spec(content, "here") == table
    assert content["source"]["table"] == "lake.crawl"
    assert table.read_options == {"declared": "url string"}
    assert replace(table, source=SPEC.source).read_options == {"schema": "url string"}
    assert (table.partition_type("dt"), SPEC.partition_type("dt")) == ("date", "string")
    assert not {"table"} & SPEC.to_json()["source"].keys()
    assert "partition_types" not in SPEC.to_json()
    assert not table.is_like(replace(table, partition_types={}))
    with pytest.raises(SpecMismatch, match=r"source table: lake.crawl in the index, none asked for"):
        check_same(table, SPEC, "here")
    content["partition_types"]["dt"] = "no type"
    with pytest.raises(NewerFormat):
        parse_spec(content, "here")


def test_whether_page_maps_are_recorded_is_each_snapshots_own(storage: Storage) -> None:
    mapped = replace(SPEC, page_maps=True)
    assert "page_maps" not in SPEC.to_json()
    assert parse_spec(mapped.to_json(), "here") == mapped
    assert mapped.is_like(SPEC)
    assert SPEC.is_like(mapped)
    assert spec_differences(SPEC, mapped) == [("page_maps", None, True)]
    assert spec_differences(mapped, SPEC) == [("page_maps", True, None)]
    deep = replace(SPEC, page_maps=DEEP)
    assert parse_spec(deep.to_json(), "here") == deep
    assert [most_maps(one, other) for one, other in ((False, True), (True, DEEP), (DEEP, False))] == [True, DEEP, DEEP]
    with pytest.raises(NewerFormat, match="page maps that this program does not know"):
        parse_spec(SPEC.to_json() | {"page_maps": "deeper"}, "here")
    create_spec(storage, SPEC)
    create_spec(storage, mapped)
    put_back(storage, mapped)
    assert read_spec(storage) == SPEC


def test_the_same_spec_may_be_there_already_and_another_may_not(storage: Storage) -> None:
    create_spec(storage, SPEC)
    create_spec(storage, SPEC)
    with pytest.raises(SpecMismatch, match="buckets: 16 in the index, 8 asked for; build to another folder"):
        create_spec(storage, replace(SPEC, buckets=8))
    assert read_spec(storage) == SPEC


@pytest.mark.parametrize("lost", ["missing", "a flipped byte", "another's"])
def test_a_spec_that_is_lost_is_put_back(storage: Storage, tmp_path: Path, lost: str) -> None:
    create_spec(storage, replace(SPEC, buckets=8) if lost != "another's" else replace(SPEC, partitions=("other",)))
    path = tmp_path / SPEC_PATH
    if lost == "missing":
        path.unlink()
        storage.put_new("_shadow/snapshots/00000000000000000001.json", [b"{}"])
    if lost == "a flipped byte":
        path.write_bytes(path.read_bytes().replace(b"crawl", b"crawm"))
    put_back(storage, SPEC)
    assert read_spec(storage) == SPEC


def test_a_spec_that_differs_in_what_is_the_snapshots_own_stays(storage: Storage) -> None:
    first = replace(SPEC, buckets=8, source=Folder("/elsewhere"))
    create_spec(storage, first)
    put_back(storage, SPEC)
    assert read_spec(storage) == first


@pytest.mark.parametrize("place", ["nowhere", "file", "plain_folder"])
def test_what_is_not_an_index_is_said_not_to_be_one(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "plain_folder").mkdir()
    with pytest.raises(
        IndexNotFound, match=f"{tmp_path}/{place}: not an index .*run gnomon build SOURCE INDEX --key KEY"
    ):
        read_spec(storage_at(str(tmp_path / place)))


def test_a_lost_spec_of_an_index_with_snapshots_is_damage_not_absence(storage: Storage) -> None:
    storage.put_new("_shadow/snapshots/00000000000000000001.json", [b"{}"])
    with pytest.raises(
        DamagedMetadata, match=r"_shadow/spec.json: missing, though there are snapshots; run gnomon build"
    ):
        read_spec(storage)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(format_version=99),
        lambda content: content.update(format_version=99, keys="in another shape"),
        lambda content: content["hash"].update(name="xxhash64"),
        lambda content: content["hash"].update(seed=43),
        lambda content: content.update(layout="spiral"),
        lambda content: content["keys"][0].update(type="geometry"),
        lambda content: content["keys"][0].update(source_type="geometry"),
    ],
)
def test_a_newer_format_is_refused_before_a_key_is_looked_up(
    storage: Storage, change: Callable[[dict[str, Any]], object]
) -> None:
    rewritten(storage, change)
    with pytest.raises(NewerFormat, match=r"_shadow/spec.json: .* this program .*; upgrade gnomon"):
        read_spec(storage)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(format="delta"),
        lambda content: content.update(format_version="1"),
        lambda content: content.pop("format_version"),
        lambda content: content.pop("buckets"),
        lambda content: content.update(source="text"),
        lambda content: content.update(keys=["url"]),
        lambda content: content.update(partitions=None),
    ],
)
def test_sound_json_that_is_no_spec_is_damage(storage: Storage, change: Callable[[dict[str, Any]], object]) -> None:
    rewritten(storage, change)
    with pytest.raises(DamagedMetadata, match=r"_shadow/spec.json at byte 0: .*run gnomon build INDEX --full"):
        read_spec(storage)


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["url", "Url_2"], ["url", "Url_2"]),
        (["a.b", "user id", "a,b"], ["a_x2e_b", "user_x20_id", "a_x2c_b"]),
        (["`x`", "é", "日"], ["_x60_x_x60_", "_xe9_", "_x65e5_"]),
        (["1st", ""], ["_1st", "_"]),
        (["metadata", "metadata_", "data_offset"], ["metadata_", "metadata__", "data_offset_"]),
        (["a.b", "a_x2e_b"], ["a_x2e_b", "a_x2e_b_"]),
        (["a_x2e_b", "a.b"], ["a_x2e_b", "a_x2e_b_"]),
        (["ID", "id", "Id"], ["ID", "id_", "Id__"]),
        (["METADATA", "DT"], ["METADATA_", "DT_"]),
    ],
)
def test_names_that_avro_or_engines_cannot_hold_are_escaped_apart(columns: list[str], names: list[str]) -> None:
    spec = replace(SPEC, keys=tuple(KeyColumn(name, "string") for name in columns), include=())
    assert [column.name for column in spec.entry_schema.keys] == names
    assert all(AVRO_NAME.fullmatch(name) for name in names)
    shown = spec.to_json()["keys"]
    assert [(key["name"], key["column"]) for key in shown] == list(zip(columns, names, strict=True))


def test_an_included_column_is_escaped_away_from_a_key() -> None:
    spec = replace(SPEC, keys=(KeyColumn("a.b", "string"),), include=(KeyColumn("a_x2e_b", "int"),))
    assert [column.name for column in spec.entry_schema.columns[:2]] == ["a_x2e_b", "a_x2e_b_"]


def test_partition_columns_of_the_key_are_not_stored() -> None:
    assert [key.name for key in SPEC.stored_keys] == ["url", "price"]
    assert SPEC.key_types == ("string", "decimal(10,2)")
    assert [column.name for column in SPEC.entry_schema.keys] == ["url", "price"]


def test_the_file_reads_as_the_docs_page_shows_it(storage: Storage, tmp_path: Path) -> None:
    create_spec(storage, SPEC)
    content = json.loads((tmp_path / SPEC_PATH).read_text())
    assert content["keys"][0] == {"name": "url", "type": "string", "column": "url"}
    assert content["keys"][1] == {"name": "dt", "type": "string", "partition": True}
    assert content["hash"] == {"name": "spark-murmur3", "seed": 42}
    assert next(iter(content)) == "format"
    assert list(content)[-1] == "crc32"


@pytest.mark.parametrize(
    ("keys", "include", "message"),
    [
        (("url", "url"), (), "named twice: url, url"),
        (("url",), ("status", "status"), "named twice"),
        (("dt",), (), "partition columns alone"),
    ],
)
def test_keys_that_cannot_work_are_refused(keys: tuple[str, ...], include: tuple[str, ...], message: str) -> None:
    spec = replace(
        SPEC,
        keys=tuple(KeyColumn(name, "string", name in SPEC.partitions) for name in keys),
        include=tuple(KeyColumn(name, "string") for name in include),
    )
    with pytest.raises(UsageError, match=message):
        check_columns(spec)


def test_a_mismatch_names_each_difference() -> None:
    other = replace(SPEC, source=Folder("/lake/other"), keys=SPEC.keys[:1])
    with pytest.raises(SpecMismatch, match=r"^/lake/index: another spec; ") as caught:
        check_same(SPEC, other, "/lake/index")
    assert "; source location: /lake/crawl in the index, /lake/other asked for; keys: " in str(caught.value)
    assert str(caught.value).endswith("; build to another folder, or say --adopt where SOURCE is a copy")
    check_same(SPEC, replace(SPEC), "/lake/index")


def test_other_options_than_the_index_has_are_shown_alone() -> None:
    asked = replace(SPEC, options=(("delimiter", ","),))
    with pytest.raises(SpecMismatch) as caught:
        check_same(replace(SPEC, options=(("delimiter", ";"),)), asked, "/lake/index")
    assert str(caught.value) == (
        "/lake/index: another spec; source options: delimiter=; in the index, delimiter=, asked for; "
        "build to another folder, or leave --option and --schema out: the index has its own"
    )


def test_a_column_of_no_key_type_is_a_difference_like_any_other() -> None:
    asked = replace(SPEC, keys=(KeyColumn("no_such_column", "unknown"),))
    with pytest.raises(SpecMismatch) as caught:
        check_same(SPEC, asked, "/lake/index")
    told = (
        "another spec; keys: url string, dt string, price decimal(10,2) in the index, no_such_column asked for; build"
    )
    assert told in str(caught.value)
