"""The metadata of Delta and Iceberg tables as sources: what is read, what is refused, and where a fault lies."""

import gzip
import io
import json
import re
import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StructType, UUIDType
from pyiceberg.utils.config import Config
from pyroaring import BitMap64

from gnomon.base.errors import Action
from gnomon.jobs.build import build
from gnomon.jobs.dedup import append_new
from gnomon.shadow.errors import ShadowError, SourceError, SourceNotFound, StorageError, UsageError
from gnomon.shadow.storage import storage_at
from gnomon.shadow.storage.contract import ANY_TIME
from gnomon.shadow.tables import iceberg_deletes, lake_source
from gnomon.shadow.tables.iceberg_files import HEADER, MAGIC, SYNC_BYTES, avro_records
from gnomon.shadow.tables.lake_source import LakeSource, TableVersion, is_lake
from gnomon.shadow.verify import verify
from tests.jobs.build.test_typed_partitions import move_table
from tests.opened import open_index
from tests.profiles import cases
from tests.shadow.storage.test_objects import answering

ROWS = pa.table({"id": pa.array(range(10)), "day": ["a/b", "", None, "50%", "x"] * 2})


@pytest.fixture
def delta(tmp_path: Path) -> str:
    write_deltalake(tmp_path / "d", ROWS, partition_by=["day"])
    return str(tmp_path / "d")


@pytest.fixture
def iced(tmp_path: Path) -> Iterator[Table]:
    """A table with two snapshots, the second without the rows below 3."""
    with closing(SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")) as catalog:
        catalog.create_namespace("ns")
        table = catalog.create_table("ns.t", ROWS.schema)
        table.append(ROWS)
        table.delete("id < 3")
        yield table


def test_the_names_of_lake_tables_are_told_from_paths() -> None:
    assert all(map(is_lake, ("delta:/a", "iceberg:c.ns.t", "hudi:/a", "delta:s3://b/t")))
    assert not any(map(is_lake, ("/delta", "s3://delta/t", "table:db.t", "delta", "./delta:x")))


def test_a_delta_version_has_its_live_files_with_partitions(delta: str) -> None:
    DeltaTable(delta).delete("id = 0")
    old, new = lake_source(f"delta:{delta}", "0"), lake_source(f"delta:{delta}")
    assert (old.content.version.version, new.content.version.version) == ("0", "1")
    assert old.content.version.uuid == new.content.version.uuid
    assert dict(new.types) == {"day": "string"}
    assert new.columns == "id bigint"
    assert {file.partition for file in old.content.files.values()} == {
        "day=a%2Fb",
        "day=__HIVE_DEFAULT_PARTITION__",  # of "", too: Delta has no empty text in partitions
        "day=50%25",
        "day=x",
    }
    [info] = [info for info in new.list()[0] if new.partition_of(info.path) == "day=x"]
    assert (info.size, info.mtime_ns) == ((Path(delta) / info.path).stat().st_size, ANY_TIME)


def test_an_iceberg_snapshot_has_its_live_files(iced: Table) -> None:
    new, older = (lake_source(f"iceberg:{iced.metadata_location}", version) for version in ("", _first(iced)))
    for source, rows in ((new, 7), (older, 10)):
        [path] = source.content.files
        assert pq.read_metadata(f"{source.location}/{path}").num_rows == rows
    assert new.columns == "id bigint COMMENT '{\"id\": 1}', day string COMMENT '{\"id\": 2}'"
    assert new.name == f"iceberg:{new.location}", "the metadata file changes with each version"


def _first(table: Table) -> str:
    return str(table.snapshots()[0].snapshot_id)


def test_the_newest_version_of_a_delta_table_is_found_without_its_files(delta: str) -> None:
    source = lake_source(f"delta:{delta}")
    known = source.content.version
    assert source.newest(known) == known
    write_deltalake(delta, ROWS, mode="append")
    newest = source.newest(known)
    assert (newest.version, newest.uuid) == ("1", known.uuid)
    assert source.newest(newest) == newest


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("hudi:/a", UsageError, "hudi:/a: Hudi's Python client estimates the rows of files"),
        ("delta:unity:c.s.t", UsageError, "^delta:unity:c.s.t: .* Unity Catalog .* iceberg:CATALOG.schema.table"),
        ("delta:uc://c.s.t", UsageError, "^delta:uc://c.s.t: .* Unity Catalog .* iceberg:CATALOG.schema.table"),
        ("delta:/no/such/place", SourceNotFound, "no Delta table there"),
        ("iceberg:/no/such/place", SourceNotFound, "no metadata file there"),
        ("iceberg:/no/such/v1.metadata.json", SourceNotFound, "no metadata file there"),
        ("iceberg:alone", UsageError, "expected iceberg:CATALOG.namespace.table"),
        ("iceberg:nobody.ns.t", StorageError, "URI missing.*; check the settings of the catalog"),
        ("iceberg:nobody.t", UsageError, "expected iceberg:CATALOG.namespace.table"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_clear_error(name: str, kind: type[ShadowError], says: str) -> None:
    with pytest.raises(kind, match=says) as found:
        lake_source(name)
    assert "\n" not in str(found.value)


def check_words(text: str, name: str, advice: str) -> None:
    """Check that a text is one line of a table, with the advice at its end, without secrets and a client's times."""
    assert text.startswith(f"{name}: ")
    assert text.endswith(f"; {advice}")
    assert not re.search(r"\n|\x1b|secret|Traceback|\d(ns|µs|ms|s)\b|max_retries|<\?xml", text), text


@pytest.mark.parametrize(
    ("status", "code", "says", "advice"),
    [
        (403, "AccessDenied", "403 Forbidden AccessDenied", Action.SET_S3_KEYS),
        (403, "RequestTimeTooSkewed", "RequestTimeTooSkewed", Action.SET_CLOCK),
        (401, "", "401 Unauthorized", Action.SET_S3_KEYS),
        (400, "ExpiredToken", "ExpiredToken", Action.SET_S3_KEYS),
        (404, "NoSuchBucket", "NoSuchBucket", Action.MAKE_BUCKET),
        (503, "SlowDown", "503 Service Unavailable SlowDown", Action.RUN_AGAIN_ANSWERING),
        (400, "KeyTooLong", "KeyTooLong", Action.RUN_AGAIN_OR_REPAIR),
    ],
)
def test_what_a_store_says_to_deltalake_is_one_line_with_the_advice(
    status: int, code: str, says: str, advice: Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>x</Message></Error>\n' if code else ""
    for name, value in {"ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s3-secret", "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with answering([(status, body.encode())]) as (url, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(StorageError, match=f"its log cannot be read .*{says}") as found:
            lake_source("delta:s3a://lake/t")
    check_words(str(found.value), "delta:s3a://lake/t", str(advice))


@pytest.mark.parametrize(
    ("status", "body", "says", "advice"),
    [
        (401, {"error": {"message": "no", "type": "NotAuthorized", "code": 401}}, "no", Action.CHECK_CATALOG_ACCESS),
        (403, {"error": {"message": "no", "type": "Forbidden", "code": 403}}, "no", Action.CHECK_CATALOG_ACCESS),
        (503, "busy\nbusy", "503", Action.CHECK_CATALOG_RUNS),
        (500, {"error": {"message": "java.lang.X\n at y", "type": "X", "code": 500}}, "X", Action.CHECK_CATALOG_RUNS),
        (200, "<html>\nsign in</html>", "ConfigResponse", Action.CHECK_CATALOG_SETTINGS),
        (404, "<html>\nnone</html>", "404", Action.CHECK_CATALOG_SETTINGS),
    ],
)
def test_what_a_catalog_says_is_one_line_with_the_advice(
    status: int, body: object, says: str, advice: Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    monkeypatch.setenv("PYICEBERG_CATALOG__SAYING__TYPE", "rest")
    with answering([(status, content.encode())]) as (url, _):
        monkeypatch.setenv("PYICEBERG_CATALOG__SAYING__URI", url.replace("//", "//me:secret@"))
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read when pyiceberg is imported
        with pytest.raises(StorageError, match=f"the catalog cannot be opened .*{says}") as found:
            lake_source("iceberg:saying.ns.t")
    check_words(str(found.value), "iceberg:saying.ns.t", str(advice))
    with pytest.raises(StorageError, match="the catalog cannot be reached at http://127") as found:
        lake_source("iceberg:saying.ns.t")
    check_words(str(found.value), "iceberg:saying.ns.t", str(Action.CHECK_CATALOG_RUNS))


def test_a_version_that_is_not_there_is_named(delta: str, iced: Table) -> None:
    with pytest.raises(UsageError, match=r"expected a number, found 'x'"):
        lake_source(f"delta:{delta}", "x")
    with pytest.raises((SourceNotFound, StorageError)):
        lake_source(f"delta:{delta}", "7")
    with pytest.raises(SourceNotFound, match=rf"expected one of its snapshots \({_first(iced)}.*found '7'"):
        lake_source(f"iceberg:{iced.metadata_location}", "7")


def test_a_damaged_log_of_delta_is_an_error(delta: str) -> None:
    log = Path(delta) / f"_delta_log/{0:020d}.json"
    log.write_bytes(log.read_bytes()[:-40])
    with pytest.raises((StorageError, SourceNotFound)):
        lake_source(f"delta:{delta}")


def _metadata_files(table: Table) -> dict[str, Path]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    [manifest, *_] = snapshot.manifests(table.io)
    places = {
        "manifest list": snapshot.manifest_list,
        "manifest": manifest.manifest_path,
        "metadata": table.metadata_location,
    }
    return {name: Path(place.removeprefix("file://")) for name, place in places.items()}


@pytest.mark.parametrize("which", ["manifest list", "manifest", "metadata"])
@pytest.mark.parametrize("damage", ["cut", "gone", "empty"])
def test_damaged_metadata_of_iceberg_is_an_error_and_never_no_rows(iced: Table, which: str, damage: str) -> None:
    file = _metadata_files(iced)[which]
    data = file.read_bytes()
    file.unlink()
    if damage != "gone":
        file.write_bytes(data[: len(data) // 2] if damage == "cut" else b"")
    with pytest.raises((SourceError, SourceNotFound, StorageError)) as found:
        lake_source(f"iceberg:{iced.metadata_location}")
    assert file.name in str(found.value)


def _blob(rows: BitMap64) -> bytes:
    content = iceberg_deletes.VECTOR_MAGIC + rows.serialize()
    return len(content).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")


def test_every_flipped_bit_of_a_deletion_vector_is_noticed() -> None:
    rows = BitMap64([0, 5, 70_000, 2**33])
    before, blob = b"PFA1other", _blob(rows)
    entry = ("/t/a.puffin", len(before), len(blob))
    assert iceberg_deletes.deletion_vector(before + blob + b"more", *entry) == rows
    for at in range(len(blob)):
        broken = bytearray(blob)
        broken[at] ^= 1
        with pytest.raises(SourceError, match=r"/t/a\.puffin"):
            iceberg_deletes.deletion_vector(before + bytes(broken), *entry)
    with pytest.raises(SourceError, match="expected a deletion vector of"):
        iceberg_deletes.deletion_vector((before + blob)[:-3], *entry)


def test_a_damaged_file_of_position_deletes_is_an_error() -> None:
    for kind in ("parquet", "avro", "orc"):
        with pytest.raises(SourceError, match=r"/t/deletes"):
            list(iceberg_deletes.position_deletes(b"PAR1 no such file", "/t/deletes", kind))
    with pytest.raises(UsageError, match="position deletes of format lance"):
        list(iceberg_deletes.position_deletes(b"", "/t/deletes", "lance"))


def test_an_orc_file_of_a_table_with_uuids_is_refused(tmp_path: Path) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("ns")
    inner = StructType(NestedField(3, "own", UUIDType()))
    schema = IcebergSchema(NestedField(1, "id", LongType()), NestedField(2, "inner", inner))
    table = catalog.create_table("ns.t", schema)
    added = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/a.orc",
        file_format=FileFormat.ORC,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=100,
        spec_id=0,
    )
    with closing(catalog), table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(added)
    with pytest.raises(UsageError, match=r"/data/a\.orc: column inner\.own: a UUID in an ORC file is not read"):
        lake_source(f"iceberg:{table.metadata_location}")


def test_a_data_file_that_a_snapshot_lists_twice_is_refused(iced: Table) -> None:
    """Its rows are in the table twice. The index would give them once."""
    place = iced.location() + "/data/taken-in.parquet"
    pq.write_table(ROWS, place.removeprefix("file://"))
    for _ in range(2):
        iced.add_files([place], check_duplicate_files=False)
    assert iced.scan().to_arrow().num_rows == 7 + 20
    with pytest.raises(UsageError, match=r"/data/taken-in\.parquet: a data file that the snapshot lists twice"):
        lake_source(f"iceberg:{iced.metadata_location}")


def test_deletes_in_an_avro_file_that_is_gone_are_an_error(tmp_path: Path) -> None:
    where = f"{tmp_path}/data/a.avro"
    paths = iceberg_deletes.Paths(str(tmp_path), str(tmp_path))
    with pytest.raises(SourceNotFound, match=r"data/a\.avro: gone, so that its deleted rows cannot be told"):
        iceberg_deletes.pointer_numbers(paths, where, BitMap64([1]))


def test_an_older_version_is_read_with_the_columns_of_its_time(iced: Table) -> None:
    known = lake_source(f"iceberg:{iced.metadata_location}").content.version
    with iced.update_schema() as update:
        update.rename_column("day", "date")
    named = LakeSource(f"iceberg:{iced.metadata_location}", known)
    assert "day string" in named.columns
    assert "date string" in lake_source(f"iceberg:{iced.metadata_location}").columns
    assert "day string" in LakeSource(named.name, TableVersion(known.uuid, known.version, known.metadata)).columns


@pytest.mark.parametrize(("kind", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_a_missing_package_is_named_with_the_extra_that_has_it(
    kind: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"gnomon.shadow.tables.{kind}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"package {package}.*pip install 'gnomon-index\[{kind}\]'"):
        lake_source(f"{kind}:/a")


@pytest.mark.parametrize("hint", [None, "1", "3", "v2"], ids=str)
@pytest.mark.parametrize("ending", ["metadata.json", "gz.metadata.json"])
def test_the_newest_metadata_file_of_a_folder_is_found_as_java_does(
    iced: Table, tmp_path: Path, hint: str | None, ending: str
) -> None:
    """`version-hint.text` may lag behind or be missing; the files may be compressed."""
    folder = Path(iced.location().removeprefix("file://")) / "metadata"
    files = [one.metadata_file for one in iced.metadata.metadata_log] + [iced.metadata_location]
    for number, file in enumerate(files, 1):
        data = Path(file.removeprefix("file://")).read_bytes()
        (folder / f"v{number}.{ending}").write_bytes(gzip.compress(data) if ending.startswith("gz") else data)
    if hint is not None:
        (folder / "version-hint.text").write_text(f"{hint}\n")
    number = 2 if hint == "v2" and ending == "metadata.json" else len(files)
    if hint == "v2" and ending != "metadata.json":  # a name, which has to be there
        with pytest.raises(SourceNotFound, match="no metadata file there"):
            lake_source(f"iceberg:{folder.parent}")
        return
    version = lake_source(f"iceberg:{folder.parent}").content.version
    assert Path(version.metadata).name == f"v{number}.{ending}"


def test_a_version_that_is_asked_for_has_its_own_columns_and_the_newest_has_the_tables(iced: Table) -> None:
    with iced.update_schema() as update:
        update.rename_column("day", "date")
    folder = Path(iced.location().removeprefix("file://"))
    for number, one in enumerate([*iced.metadata.metadata_log], 1):
        shutil.copy(one.metadata_file.removeprefix("file://"), folder / f"metadata/v{number}.metadata.json")
    shutil.copy(iced.metadata_location.removeprefix("file://"), folder / f"metadata/v{number + 1}.metadata.json")
    current = iced.current_snapshot()
    assert current is not None
    asked = lake_source(f"iceberg:{folder}", str(current.snapshot_id))
    assert "day string" in asked.columns
    newest = asked.newest(asked.content.version)
    assert newest != asked.content.version
    assert newest.version == asked.content.version.version
    assert "day string" in LakeSource(asked.name, asked.content.version).columns
    assert "date string" in LakeSource(asked.name, newest).columns


def test_values_of_manifests_are_read_as_they_are_written() -> None:
    """Dates and timestamps that Python cannot hold, decimals of all digits, timestamps without a zone."""
    kinds = {
        "day": {"type": "int", "logicalType": "date"},
        "local": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
        "price": {"type": "fixed", "name": "f", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 2},
        "id": {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"},
    }
    plain = {name: {key: one for key, one in kind.items() if key != "logicalType"} for name, kind in kinds.items()}
    rows = [{"day": -(1 << 31), "local": (1 << 63) - 1, "price": b"\xff" * 16, "id": bytes(16)}]
    data = io.BytesIO()
    fields = [{"name": name, "type": ["null", kind]} for name, kind in plain.items()]
    fastavro.writer(data, {"type": "record", "name": "r", "fields": fields}, rows, codec="deflate")
    fields = [{"name": name, "type": ["null", kind]} for name, kind in kinds.items()]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    found, declared = avro_records(with_schema(data.getvalue(), schema), "here")
    assert found == rows
    assert declared["fields"][2]["type"][1]["logicalType"] == "decimal"


def with_schema(data: bytes, schema: str) -> bytes:
    """An Avro file with another schema in its header."""
    stream = io.BytesIO(data)
    reader = fastavro.reader(stream)
    begin, out = stream.tell(), io.BytesIO()
    meta = {"avro.schema": schema.encode(), "avro.codec": reader.codec.encode()}
    fastavro.schemaless_writer(out, HEADER, {"magic": MAGIC, "meta": meta, "sync": data[begin - SYNC_BYTES : begin]})
    return out.getvalue() + data[begin:]


def test_columns_whose_names_differ_in_case_are_two_columns(tmp_path: Path) -> None:
    with closing(SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")) as catalog:
        catalog.create_namespace("ns")
        rows = pa.table({"id": [1, 2], "ID": ["a", "b"], "Id": [0.5, None]})
        table = catalog.create_table("ns.t", rows.schema)
        table.append(rows)
        for key, value in (("id", 1), ("ID", "a")):
            build(None, f"iceberg:{table.metadata_location}", tmp_path / key, [key])
            assert open_index(tmp_path / key).fetch(value) == [{"id": 1, "ID": "a", "Id": 0.5}]
            assert verify(storage_at(str(tmp_path / key)), None).is_sound


ODD_NAMES = (
    "a%20b",
    "a%2520b",
    "a%2Fb",
    "%25",
    "a\\b",
    "a\tb",
    "a b",
    "a#b",
    "a?b",
    "ü",
    "a+b",
    "100%",
    "a:b",
    "p=x%2Fy",
)


@pytest.mark.parametrize("name", cases(ODD_NAMES))
def test_a_delta_table_is_read_and_written_in_its_own_folder_whatever_its_name_is(name: str, tmp_path: Path) -> None:
    """Beside it lies a table in the folder whose name deltalake would make of the name."""
    write_deltalake(tmp_path / "plain", ROWS, partition_by=["day"])
    write_deltalake(tmp_path / "plain", ROWS, mode="append")
    DeltaTable(tmp_path / "plain").delete("id = 3")
    write_deltalake(tmp_path / "other", pa.table({"id": [99]}))
    root = tmp_path / name
    shutil.copytree(tmp_path / "plain", root)
    (tmp_path / "link").symlink_to(root)
    for other in {unquote(name).replace("\\", "/"), unquote(unquote(name))} - {name, "%"}:
        shutil.copytree(tmp_path / "other", tmp_path / other.strip("\t/"))
    for place, rows in ((root, 18), (tmp_path / "link", 20)):
        source, index = f"delta:{place}", tmp_path / f"index-{place.name[:1]}"
        build(None, source, index, ["id"])
        assert open_index(index).view.snapshot.rows == rows
        append_new(None, index, pa.table({"id": [3, 50], "day": ["a%20b#?", "z"]}), f"of {place}")
        assert len(open_index(index, newest=True).fetch(50)) == 1
        assert len(LakeSource(source).history(LakeSource(source).content.version).branches["main"]) >= 3
        assert verify(storage_at(str(index)), None).is_sound


@pytest.mark.parametrize("name", ["a%20b", "a b", "a#b", "a?b", "ü", "a+b", "100%", "p=x%2Fy"])
def test_an_iceberg_table_is_read_in_its_own_folder_whatever_its_name_is(
    name: str, iced: Table, tmp_path: Path
) -> None:
    """The metadata has locations without escapes."""
    old, new = iced.location().removeprefix("file://"), f"{tmp_path}/{name}"
    move_table(Path(old), Path(new))
    newest = Path(iced.metadata_location).name
    build(None, f"iceberg:{new}/metadata/{newest}", tmp_path / "index", ["id"])
    assert sorted(row["id"] for rows in open_index(tmp_path / "index").fetch_many(range(10)) for row in rows) == [
        *range(3, 10)
    ]
    assert open_index(tmp_path / "index").spec.source.location == new


def test_a_void_column_of_a_delta_table_is_left_out(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": [1], "s": [{"a": 2, "b": None}]}))
    log = tmp_path / f"t/_delta_log/{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    [metadata] = [one["metaData"] for one in actions if "metaData" in one]
    schema = json.loads(metadata["schemaString"])
    void = {"nullable": True, "type": "void", "metadata": {}}
    of_struct = next(field for field in schema["fields"] if field["name"] == "s")
    of_struct["type"]["fields"] = [field for field in of_struct["type"]["fields"] if field["name"] == "a"]
    of_struct["type"]["fields"].append({**void, "name": "b"})
    schema["fields"] += [
        {**void, "name": "v"},
        {**void, "name": "w", "type": {"type": "struct", "fields": [{**void, "name": "x"}]}},
    ]
    metadata["schemaString"] = json.dumps(schema)
    log.write_text("\n".join(map(json.dumps, actions)))
    build(None, f"delta:{tmp_path}/t", tmp_path / "index", ["id"])
    assert open_index(tmp_path / "index").fetch(1) == [{"id": 1, "s": {"a": 2}}]


@pytest.mark.parametrize("hint", [None, "99", "2", "", "x"], ids=str)
def test_a_log_whose_hint_of_a_checkpoint_is_wrong_is_listed(hint: str | None, delta: str) -> None:
    for _ in range(3):
        write_deltalake(delta, ROWS, mode="append")
    DeltaTable(delta).create_checkpoint()
    write_deltalake(delta, ROWS, mode="append")
    log = Path(delta) / "_delta_log"
    if hint is None:
        next(log.glob("*.checkpoint.parquet")).unlink()
    else:
        (log / "_last_checkpoint").write_text(
            json.dumps({"version": int(hint), "size": 9}) if hint.isdecimal() else hint
        )
    source = lake_source(f"delta:{delta}")
    assert source.content.version.version == "4"
    assert sum(pq.read_metadata(f"{delta}/{path}").num_rows for path in source.content.files) == 50
    assert source.newest(source.content.version._replace(version="3", metadata="")) == source.content.version
