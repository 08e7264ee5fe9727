"""A store that answers single requests wrongly: no row is lost, doubled or wrong, and what was done is said truly."""

import contextlib
import itertools
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from gnomon.base.errors import GnomonError
from gnomon.jobs.build import BuildRequest, LocalEngine, build, write_btree
from gnomon.jobs.build.job import build_index
from gnomon.jobs.build.specs import Vanished
from gnomon.jobs.dedup import Origin, append_new
from gnomon.jobs.files import CatalogTable
from gnomon.shadow.errors import SpecMismatch, UsageError
from gnomon.shadow.maintenance import compact, rebucket, vacuum
from gnomon.shadow.storage import storage_at
from gnomon.shadow.storage.objects import ObjectStorage
from gnomon.shadow.storage.retries import Patience
from gnomon.shadow.verify import verify
from tests.jobs.dedup.lake_tables import here
from tests.opened import open_index
from tests.profiles import cases
from tests.shadow.make_index import write_source
from tests.stores import lying
from tests.stores.lying import Fault, LyingProxy, Request
from tests.stores.process import Store

pytestmark = pytest.mark.store
ROWS = 50  # of a source file
TABLE = "here.ns.t"  # an Iceberg table, with its catalog
NOT_LISTINGS = (lying.error_as_success, lying.sign_in_page, lying.empty_success)


@dataclass
class Lake:
    """A source, files or a table, and its index on the store, and the rows that the source must have. `kind` is
    `files`, `delta` or `iceberg`, whose tables a catalog outside the store names."""

    proxy: LyingProxy
    place: str
    kind: str = "files"
    catalog: Catalog | None = None
    rows: dict[str, int] = field(default_factory=dict)
    files: int = 0

    @property
    def source(self) -> str:
        return f"{self.place}/source"

    @property
    def name(self) -> str:
        """The source as a build takes it."""
        return {"files": self.source, "delta": f"delta:{self.source}", "iceberg": f"iceberg:{TABLE}"}[self.kind]

    @property
    def index(self) -> str:
        return f"{self.place}/index"

    def iceberg(self) -> Table:
        assert self.catalog is not None
        return self.catalog.load_table(TABLE.partition(".")[2])

    def add_file(self) -> str:
        """Put a file of rows, and return its name."""
        name = f"{self.files}.parquet"
        content = {f"{self.files} {i}": self.files for i in range(ROWS)}
        if self.kind == "delta":
            write_deltalake(self.source, table(content), mode="append", storage_options={"allow_http": "true"})
        elif self.kind == "iceberg":
            self.iceberg().append(table(content))
        else:
            write_source(storage_at(self.source), {name: table(content)})
        self.rows |= content
        self.files += 1
        return name

    def build(self, **options: object) -> None:
        build(None, self.name, self.index, ["id"], **options)  # type: ignore[arg-type]

    def append(self, *keys: str) -> None:
        """Append rows of a batch that has a known key, too."""
        append_new(None, self.index, table(dict.fromkeys([*keys, "0 0"], -1)), f"batch of {keys[0]}")
        self.rows |= dict.fromkeys(keys, -1)

    def check(self) -> None:
        """The index has the rows of the source, and the source has each row once. The store is well."""
        self.proxy.plan = None
        found = self.read()
        assert Counter(row["id"] for row in found) == Counter(self.rows.keys())
        assert {row["id"]: row["of"] for row in found} == self.rows
        self.build()
        answers = open_index(self.index).fetch_many(list(self.rows))
        assert [[row["of"] for row in rows] for rows in answers] == [[of] for of in self.rows.values()]
        report = verify(storage_at(self.index))
        assert report.is_sound, report.faults

    def read(self) -> list[dict[str, Any]]:
        if self.kind == "iceberg":
            whole = self.iceberg().scan().to_arrow()
        elif self.kind == "delta":
            whole = DeltaTable(self.source, storage_options={"allow_http": "true"}).to_pyarrow_table()
        else:
            storage = storage_at(self.source)
            data = [storage.read(info.path) for info in storage.list() if info.size]
            whole = pa.concat_tables([pq.read_table(pa.BufferReader(one)) for one in data])
        rows: list[dict[str, Any]] = whole.to_pylist()
        return rows


def table(rows: dict[str, int]) -> pa.Table:
    return pa.table({"id": pa.array(rows, pa.string()), "of": pa.array(rows.values(), pa.int64())})


@contextlib.contextmanager
def lake_on(store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str = "files") -> Iterator[Lake]:
    """A lake of three files, indexed; calls to the store are given up soon."""
    monkeypatch.setattr(ObjectStorage.__init__, "__defaults__", (Patience(tries=3, first_wait=0.01), ""))
    with lying.before(store) as (proxy, behind):
        lake = Lake(proxy, behind.place(folder, monkeypatch), kind)
        if kind == "iceberg":
            lake.catalog = here(folder, monkeypatch, f"{lake.place}/warehouse")
            lake.catalog.create_namespace("ns")
            lake.catalog.create_table("ns.t", table({}).schema)
        for _ in range(3):
            lake.add_file()
        lake.build(buckets=2)
        yield lake
        proxy.plan = None


@pytest.fixture
def lake(s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    with lake_on(s3, tmp_path, monkeypatch) as lake:
        yield lake


def refused(call: Callable[[], object]) -> str:
    """The text of the error of a call, in one line that names the store."""
    with pytest.raises(GnomonError) as found:
        call()
    text = str(found.value)
    assert "\n" not in text
    assert "s3://" in text
    return text


# -- heads: nothing is removed or committed because a name seems to be there ------------------------------------------


def test_an_append_is_not_done_because_a_head_says_so(lake: Lake) -> None:
    """A third of the HEADs of a name that is not there are answered, one after the other, as if it were."""
    missing: list[str] = []

    def yes(proxy: LyingProxy, request: Request) -> lying.Answer | None:
        found = proxy.forward(request)
        if found.status == 200:
            return found
        missing.append(request.path)
        return lying.sign_in_page(proxy, request) if len(missing) == nth else found

    for nth in itertools.count(random.randrange(1, 4), 3):
        missing.clear()
        lake.proxy.lies(yes, lambda request: request.kind == "head")
        try:
            lake.append(f"new {nth}")
        except GnomonError:
            lake.proxy.plan = None
            lake.append(f"new {nth}")
        if len(missing) < nth:
            break
    lake.check()


# -- listings ----------------------------------------------------------------------------------------------------------


def test_a_document_that_is_no_listing_is_not_an_empty_one(lake: Lake) -> None:
    """All listings of the index, of the source, or of both, are answered 200 with it."""
    lake.add_file()
    index, storage = open_index(lake.index), storage_at(lake.index)
    batch, origin = table({"0 0": 9, "n": -1}), Origin(lake.source, ["id"])
    append = partial(append_new, None, lake.index, batch, "b", origin=origin)
    for fault, of in itertools.product(NOT_LISTINGS, ("index", "source", "/")):
        lake.proxy.lies(fault, lambda request, of=of: request.kind == "list" and of in request.query["prefix"])  # type: ignore[misc]
        if of != "source":
            for look in (partial(open_index, lake.index), partial(vacuum, storage, 0), index.refresh):
                assert "store" in refused(look)
        for change in (lake.build, partial(lake.build, full=True), append):
            assert "nothing is there" not in refused(change)
        lake.proxy.plan = None
        assert open_index(lake.index).fetch("0 7") == [{"id": "0 7", "of": 0}]
    lake.check()


def test_a_listing_whose_second_page_is_an_error_document_is_read_on(lake: Lake) -> None:
    """Pages of two names, the second one answered 200 with an error document, once."""
    for _ in range(2):
        lake.add_file()

    def paged(proxy: LyingProxy, request: Request) -> lying.Answer:
        after = request.query.get("start-after", request.query.get("continuation-token", ""))
        if "continuation-token" in request.query and not failed:
            failed.append(request)
            return lying.error_as_success(proxy, request)  # type: ignore[return-value]
        whole = proxy.forward(lake_listing(request))
        items = lying.ITEMS.findall(whole.body)
        behind = [item for item in items if key_of(item) > after]
        if not behind:
            return lying.nothing_listed(proxy, lake_listing(request))  # type: ignore[return-value]
        body = whole.body.replace(b"".join(items), b"".join(behind[:2]))
        if behind[2:]:
            more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>"
            body = body.replace(b"<IsTruncated>false</IsTruncated>", more % key_of(behind[1]).encode())
        return lying.Answer(200, whole.headers, body)

    failed: list[Request] = []
    first: list[Request] = []

    def lake_listing(request: Request) -> Request:
        """The first request for this listing, whose answer has all names."""
        first.append(request)
        return first[0]

    def key_of(item: bytes) -> str:
        return item.partition(b"<Key>")[2].partition(b"</Key>")[0].decode()

    source = lake.source.partition("://")[2].partition("/")[2]
    lake.proxy.lies(
        paged, lambda request: request.kind == "list" and request.query.get("prefix", "").rstrip("/") == source
    )
    lake.build()
    assert failed
    lake.proxy.plan = None
    assert len(open_index(lake.index).view.covered) == 5
    lake.check()


def test_a_listing_that_goes_round_ends_with_an_error(lake: Lake) -> None:
    lake.proxy.lies(lying.pages_without_end, lambda request: request.kind == "list")
    for call in (partial(open_index, lake.index), lake.build):
        assert " twice" in refused(call)
    lake.proxy.lies(lying.twice_listed, lambda request: request.kind == "list")
    assert " twice" in refused(lake.build)
    lake.check()


def test_a_listing_of_empty_pages_ends_with_an_error(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectStorage.__init__, "__defaults__", (Patience(tries=3, first_wait=0.01, request=1), ""))
    lake.proxy.lies(lying.empty_pages_without_end, lambda request: request.kind == "list")
    for call in (partial(open_index, lake.index), lake.build):
        assert "the store's listing brings no name for 1 s" in refused(call)
    lake.check()


def test_an_index_is_opened_at_a_newest_snapshot_that_a_listing_lacks(lake: Lake) -> None:
    """The rest of the listing, with the file that must follow the snapshots, is whole."""
    name = lake.add_file()
    lake.build()
    without = lying.listing_of(lambda items: [one for one in items if b"00002.json" not in one])
    lake.proxy.lies(without, lambda request: request.kind == "list")
    assert open_index(lake.index).fetch(f"{name[0]} 7") == [{"id": f"{name[0]} 7", "of": int(name[0])}]
    lake.check()


def test_a_source_file_is_gone_only_where_it_cannot_be_opened(lake: Lake) -> None:
    rows = list(lake.rows)
    for fault in (lying.without_newest, lying.without_first, lying.first_half, lying.nothing_listed):
        lake.proxy.lies(fault, lambda request: request.kind == "list" and "/source" in request.query["prefix"])
        for options in ({}, {"full": True}, {"adopt": True}, {"accept_vanished": True}):
            assert "s3://" in refused(partial(lake.build, **options))
        lake.proxy.plan = None
        index = open_index(lake.index)
        assert index.view.snapshot.number == 1
        assert all(index.fetch_many(rows))
    lake.check()


def test_a_source_file_that_was_emptied_or_removed_is_gone(lake: Lake) -> None:
    source = storage_at(lake.source)
    for name, content in (("0.parquet", b""), ("1.parquet", None)):
        source.delete(name)
        if content is not None:
            source.put_new(name, [content])
        lake.rows = {key: of for key, of in lake.rows.items() if of != int(name[0])}
        lake.build(accept_vanished=True)
        assert set(open_index(lake.index).view.covered) == {f"{of}.parquet" for of in lake.rows.values()}
    lake.check()


def test_a_build_does_not_take_an_index_for_a_new_one_because_a_listing_lacks_its_snapshot(lake: Lake) -> None:
    """Each listing of the only snapshot in turn. A file of the source is gone: a build that takes the index for a new
    one would not drop its entries."""
    for nth in itertools.count():
        index, gone = f"{lake.place}/index {nth}", lake.add_file()
        build(None, lake.source, index, ["id"], buckets=2)
        storage_at(lake.source).delete(gone)
        made: list[Request] = []

        def of(request: Request, made: list[Request] = made) -> bool:
            made.extend([request] if request.kind == "list" and "_shadow" in str(request.query) else [])
            return made[-1:] == [request]

        lake.proxy.lies(lying.without_first, of, nth)
        build(None, lake.source, index, ["id"])
        lake.proxy.plan = None
        assert set(open_index(index).view.covered) == {"0.parquet", "1.parquet", "2.parquet"}
        if len(made) <= nth:
            break
    assert nth > 2


@pytest.mark.parametrize("fault", [lying.nothing_listed, lying.sign_in_page])
def test_a_source_is_empty_only_where_a_file_that_was_put_there_is_listed(lake: Lake, fault: Fault) -> None:
    """Every listing of the source says that it is empty, and there is no index yet."""
    batch, origin = table({"0 0": -1, "new": -1}), Origin(lake.source, ["id"], buckets=2)
    first = partial(append_new, None, f"{lake.place}/second", batch, "batch", origin=origin)
    lake.proxy.lies(fault, lambda request: request.kind == "list" and "/source" in request.query.get("prefix", ""))
    refused(first)
    lake.proxy.plan = None
    assert first().appended == 1
    lake.rows |= {"new": -1}
    lake.check()


def test_a_vacuum_removes_nothing_that_is_needed(lake: Lake) -> None:
    """Each of its listings in turn lies, and all files are old."""
    lake.add_file()
    lake.build()
    compact(storage_at(lake.index))
    rows, vacuumed = list(lake.rows), partial(vacuum, storage_at(lake.index), 0, unnamed_seconds=0)
    for fault in (lying.without_newest, lying.without_last, lying.nothing_listed, lying.error_as_success):
        for nth in itertools.count():
            asked = len(lake.proxy.requests)
            lake.proxy.lies(fault, lambda request: request.kind == "list", nth)
            with contextlib.suppress(GnomonError):
                vacuumed()
            lake.proxy.plan = None
            assert all(open_index(lake.index).fetch_many(rows))
            if sum(request.kind == "list" for request in lake.proxy.requests[asked:]) <= nth:
                break
    lake.check()


# -- tables ------------------------------------------------------------------------------------------------------------


def log_before(version: int) -> Fault:
    """Listings of a Delta log without a version and those after it."""
    return lying.listing_of(lambda items: [one for one in items if not is_from(one, version)])


def is_from(item: bytes, version: int) -> bool:
    found = re.search(rb"_delta_log/(\d{20})", item)
    return found is not None and int(found[1]) >= version


def of_log(request: Request) -> bool:
    return request.kind == "list" and "_delta_log" in request.query["prefix"]


@pytest.mark.parametrize("version", [2, 3])
def test_a_delta_log_without_its_newest_versions_is_not_the_whole_log(
    s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The index covers version 2, and version 3 is new. An append must see its keys."""
    with lake_on(s3, tmp_path, monkeypatch, "delta") as lake:
        lake.add_file()
        batch = table({"3 0": -1, "added": -1})
        append = partial(append_new, None, lake.index, batch, "b")

        def newest() -> list[dict[str, Any]]:
            return open_index(lake.index, newest=True).fetch("3 0")

        for call in (lake.build, partial(lake.build, full=True), newest, open_index(lake.index).coverage, append):
            lake.proxy.lies(log_before(version), of_log)
            assert f"{version:020d}.json: the store does not list this version of the table" in refused(call)
        lake.proxy.lies(log_before(version), of_log, 0)  # the second listing is whole
        assert newest() == [{"id": "3 0", "of": 3}]
        lake.proxy.lies(log_before(version), of_log, 0)
        assert append().appended == 1
        lake.rows["added"] = -1
        lake.check()


def test_an_iceberg_table_in_a_folder_does_not_go_back(
    s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hint lags behind, and the listing of its metadata lies, or a look at its newest file."""
    with lake_on(s3, tmp_path, monkeypatch, "iceberg") as lake:
        known = lake.iceberg()
        folder, index = storage_at(known.location()), f"{lake.place}/other"
        files = [*(one.metadata_file for one in known.metadata.metadata_log), known.metadata_location]
        for number, file in enumerate(files):
            folder.put_new(f"metadata/v{number}.metadata.json", [folder.read(file.removeprefix(f"{folder.root}/"))])
        folder.put_new("metadata/version-hint.text", [b"1"])
        change = partial(build, None, f"iceberg:{folder.root}", index, ["id"], full=True)
        lake.proxy.lies(lying.nothing_listed, lambda request: "/metadata" in request.query.get("prefix", ""))
        change()
        assert all(open_index(index).fetch_many(list(lake.rows)))
        newest = f"v{len(files) - 1}.metadata.json"
        lake.proxy.lies(lying.refusal(404, "NoSuchKey"), lambda request: newest in request.path)
        assert "no metadata file there" in refused(change)
        assert all(open_index(index).fetch_many(list(lake.rows)))


class EngineOfTable(LocalEngine):
    """The local engine with a catalog of one table."""

    def __init__(self, table: CatalogTable) -> None:
        super().__init__()
        self.table = table

    def read_table(self, source: str) -> CatalogTable:
        return self.table


@pytest.mark.parametrize("root", ["source", "elsewhere"])
def test_a_file_of_a_catalog_table_is_gone_only_where_it_cannot_be_opened(lake: Lake, root: str) -> None:
    """Its partitions lie below its root, or elsewhere. A partition that the catalog drops needs no look."""
    places = {f"p={number}": f"{lake.source}/p={number}" for number in range(3)}
    for number, place in enumerate(places.values()):
        write_source(storage_at(place), {"0.parquet": table({f"in {number}": number})})
        write_source(storage_at(place), {"1.parquet": table({f"also in {number}": number})})
    where = CatalogTable("t", f"{lake.place}/{root}", "parquet", {}, "id string, of bigint", {"p": "int"}, places, {})
    index = f"{lake.place}/other"

    def run(found: CatalogTable, vanished: Vanished = Vanished.DROP_SOME) -> None:
        build_index(EngineOfTable(found), "table:t", index, BuildRequest(["id"], vanished=vanished))

    run(where)
    tries = {Vanished.DROP_SOME: lying.without_last, Vanished.DROP_ALL: lying.nothing_listed}
    for how, fault in tries.items():
        lake.proxy.lies(fault, lambda request: request.kind == "list" and "p=1" in request.query["prefix"])
        assert "the store does not list this file, which is there" in refused(partial(run, where, how))
    lake.proxy.plan = None
    assert len(open_index(index).view.covered) == 6
    run(replace(where, places={name: place for name, place in places.items() if name != "p=1"}))
    assert len(open_index(index).view.covered) == 4


# -- commits -----------------------------------------------------------------------------------------------------------


def test_a_commit_that_the_store_gave_to_another_is_not_done(lake: Lake) -> None:
    """The put of the snapshot is answered 200 and not kept, after another program's commit of the number."""
    lake.add_file()

    def lose(proxy: LyingProxy, request: Request) -> lying.Answer:
        proxy.plan = None
        rebucket(storage_at(lake.index), 3)
        return lying.kept_nothing(proxy, request)  # type: ignore[return-value]

    lake.proxy.lies(lose, of_snapshots)
    with pytest.raises(SpecMismatch):  # what the other one did
        lake.build(buckets=2)
    build(None, lake.source, lake.index, ["id"])
    assert all(open_index(lake.index).fetch_many(list(lake.rows)))


def test_a_commit_that_the_store_did_not_keep_is_made_again(lake: Lake) -> None:
    lake.add_file()
    lake.proxy.lies(lying.kept_nothing, of_snapshots, 0)
    lake.build()
    assert open_index(lake.index).view.snapshot.number == 2
    lake.check()


def of_snapshots(request: Request) -> bool:
    return request.kind == "put" and "/_shadow/snapshots/" in request.path


def test_a_vacuum_is_refused_where_the_clocks_differ(lake: Lake) -> None:
    lake.proxy.lies(lying.two_days_ahead, lambda request: "probe" in request.path)
    text = refused(lambda: vacuum(storage_at(lake.index)))
    assert "the store's clock says 20" in text
    assert "ages of files cannot be trusted; nothing was changed" in text
    lake.check()


def test_an_open_index_does_not_go_back(lake: Lake) -> None:
    """The listings lack the newest snapshot, and the first look at it says that it is gone."""
    name = lake.add_file()
    lake.build()
    index = open_index(lake.index)

    def back(proxy: LyingProxy, request: Request) -> lying.Answer | None:
        if request.kind == "list":
            return lying.listing_of(lambda items: [one for one in items if b"00002.json" not in one])(proxy, request)
        looks.append(request)
        return lying.refusal(404, "NoSuchKey")(proxy, request) if len(looks) == 1 else proxy.forward(request)

    looks: list[Request] = []
    lake.proxy.lies(back, lambda request: request.kind == "list" or "00002.json" in request.path)
    text = refused(index.refresh)
    assert "the store does not list snapshot 2, which is there, and is answered from" in text
    assert index.fetch(f"{name[0]} 7") == [{"id": f"{name[0]} 7", "of": int(name[0])}]
    lake.check()


@pytest.mark.parametrize("mark", cases(["appended", "done", "batch"]))
def test_a_mark_of_an_append_is_there_or_is_put_again(lake: Lake, mark: str) -> None:
    """The store answers that it has the mark, and does not keep it: once, and always."""
    for nth in (0, None):
        lake.proxy.lies(lying.kept_nothing, lambda request: request.kind == "put" and mark in request.path, nth)
        if nth is None:
            assert "the store took this file and does not have it" in refused(partial(lake.append, f"new {nth}"))
            lake.proxy.plan = None
        lake.append(f"new {nth}")
        lake.check()


def test_a_build_indexes_each_file_though_a_listing_lacks_it(lake: Lake) -> None:
    """Each listing of the source in turn, of a source without an index."""
    for number, fault in enumerate((lying.without_first, lying.without_last, lying.first_half)):
        for nth in range(3):
            index = f"{lake.place}/index {number} {nth}"
            lake.proxy.lies(fault, lambda request: request.kind == "list" and "/source" in request.query["prefix"], nth)
            try:
                build(None, lake.source, index, ["id"], buckets=2)
            except GnomonError:
                continue
            lake.proxy.plan = None
            assert set(open_index(index).view.covered) == {"0.parquet", "1.parquet", "2.parquet"}


# -- answers that a second look corrects, and outages ------------------------------------------------------------------


def flipped(proxy: LyingProxy, request: Request) -> lying.Answer:
    """One bit in the middle of the body is another."""
    found = proxy.forward(request)
    middle = len(found.body) // 2
    found.body = found.body[:middle] + bytes([found.body[middle] ^ 1]) + found.body[middle + 1 :]
    return found


@pytest.mark.parametrize(
    "fault",
    [
        lying.refusal(404, "NoSuchKey"),
        lying.refusal(412, "PreconditionFailed"),
        lying.refusal(416, "InvalidRange"),
        lying.refusal(400, "RequestTimeout"),
        lying.refusal(400, "ExpiredToken"),
        lying.refusal(403, "ExpiredToken"),
        lying.short_answer,
        flipped,
        lying.sign_in_page,
    ],
)
def test_a_file_is_gone_changed_or_damaged_only_where_a_second_answer_says_so(lake: Lake, fault: Fault) -> None:
    """The first read of each file of an index, and of a source file, is wrong."""
    content = {f"checked {i}": 7 for i in range(ROWS)}
    write_source(storage_at(lake.source), {"checked.parquet": table(content)}, write_page_checksum=True)
    lake.build()
    for place in ("/_shadow/snapshots/", "/_shadow/segments/", ".btree.avro", "/checked.parquet"):
        lake.proxy.lies(fault, lambda request, place=place: request.kind == "get" and place in request.path, 0)  # type: ignore[misc]
        assert open_index(lake.index).fetch("checked 3") == [{"id": "checked 3", "of": 7}], place


def test_a_job_outlasts_an_outage_of_a_store_that_has_answered(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 requests in a row, from a put on, are refused: more than a single call is repeated otherwise."""
    quick = Patience(tries=3, first_wait=0.001, longest_wait_of_jobs=0.01)
    monkeypatch.setattr(ObjectStorage.__init__, "__defaults__", (quick, ""))
    busy, left = lying.refusal(503, "SlowDown"), [30]

    def out(request: Request) -> bool:
        is_out = left[0] < 30 or (request.kind == "put" and ".btree." in request.path)
        left[0] -= is_out
        return is_out and left[0] >= 0

    values = partial(write_btree, pa.table({"k": [1], "v": [2]}), f"{lake.place}/values", ["k"])
    for minutes, change in (("1", lake.build), ("1", partial(lake.append, "new")), ("1", values), ("0", lake.build)):
        lake.add_file()
        monkeypatch.setenv("GNOMON_STORE_MINUTES", minutes)
        left[0] = 30
        lake.proxy.lies(busy, out)
        if minutes == "0":
            assert "gave up after 3 tries" in refused(change)
        else:
            change()
            assert left[0] < 0
    lake.check()


def test_the_minutes_of_a_job_are_a_number(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.proxy.lies(lying.refusal(503, "SlowDown"), lambda request: True)
    for text in ("soon", "-1", "nan", "inf"):
        monkeypatch.setenv("GNOMON_STORE_MINUTES", text)
        with pytest.raises(UsageError, match="GNOMON_STORE_MINUTES: expected a number of minutes, 0 or more, found"):
            lake.build()


# -- a sweep -----------------------------------------------------------------------------------------------------------

READS, PUTS, ANY = ("get", "head", "list"), ("put",), ("get", "head", "list", "put", "copy", "delete")
FAULTS: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "no answer": (lying.no_answer, ANY),
    "lost answer": (lying.lost_answer, ANY),
    "cut": (lying.cut_answer, ("get", "list")),
    "short": (lying.short_answer, ("get", "list")),
    "500": (lying.refusal(500, "InternalError"), ANY),
    "503": (lying.refusal(503, "SlowDown", Retry_After="1"), ANY),
    "403": (lying.refusal(403, "AccessDenied"), ANY),
    "404": (lying.refusal(404, "NoSuchKey"), READS),
    "409": (lying.refusal(409, "ConditionalRequestConflict"), PUTS),
    "412": (lying.refusal(412, "PreconditionFailed"), ("get", *PUTS)),
    "416": (lying.refusal(416, "InvalidRange"), ("get",)),
    "error as success": (lying.error_as_success, ("list", "copy", "delete")),
    "sign-in page": (lying.sign_in_page, READS),
    "empty": (lying.empty_success, READS),
    "other object": (lying.other_object, READS),
    "kept nothing": (lying.kept_nothing, PUTS),
    "without newest": (lying.without_newest, ("list",)),
    "without last": (lying.without_last, ("list",)),
    "nothing listed": (lying.nothing_listed, ("list",)),
}
OPERATIONS = ("build", "append", "compact", "vacuum", "get", "verify")


def operation(lake: Lake, name: str) -> Callable[[], object]:
    """An operation that has something to do."""
    if name == "append":
        return partial(lake.append, f"new {lake.files} {len(lake.rows)}")
    lake.add_file()
    if name == "build":
        return lake.build
    lake.build()
    if name == "compact":
        return partial(compact, storage_at(lake.index))
    if name == "vacuum":
        return partial(vacuum, storage_at(lake.index), 0, 1, False, 0)
    if name == "verify":
        return partial(verify, storage_at(lake.index))
    return lambda: open_index(lake.index).fetch_many(list(lake.rows)[-3:])


TRIED = {"s3": 6, "delta": 4, "iceberg": 3, "google": 2, "azure": 2, "hdfs": 2}  # in each run of all tests
ALL = 150  # by hand, each night


@pytest.mark.parametrize(
    ("where", "tried"), [*TRIED.items(), *(pytest.param(one, ALL, marks=pytest.mark.nightly) for one in TRIED)]
)
def test_after_one_lie_a_repeated_operation_succeeds_and_each_row_is_there_once(
    where: str, tried: int, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = where if where in ("delta", "iceberg") else "files"
    store: Store = request.getfixturevalue(where if kind == "files" else "s3")
    seed = int(os.environ.get("GNOMON_TEST_SEED", random.randrange(1 << 30)))
    with lake_on(store, tmp_path, monkeypatch, kind) as lake:
        sweep(lake, random.Random(seed), tried, f"{where}, seed {seed}")


def sweep(lake: Lake, chance: random.Random, tried: int, what: str) -> None:
    """A fault at one request of one operation, chosen at random, and again."""
    injected, scheme = Counter[str](), lake.place.partition("://")[0]
    for trial in range(tried):
        name, (label, (fault, kinds)) = chance.choice(OPERATIONS), chance.choice(list(FAULTS.items()))
        nth = int(chance.expovariate(0.12))
        call = operation(lake, name)
        made: list[Request] = []

        def of(request: Request, kinds: tuple[str, ...] = kinds, made: list[Request] = made) -> bool:
            made.extend([request] if request.kind in kinds else [])
            return request.kind in kinds

        lake.proxy.lies(fault, of, nth)
        why = f"{what}, trial {trial}: {label} at request {nth} of {kinds} of {name}"
        try:
            found: Any = call()
            if name == "get":
                assert found == [[{"id": key, "of": lake.rows[key]}] for key in list(lake.rows)[-3:]], why
            if name == "verify":
                accused = [one for one in found.faults if "the store" not in one.what]
                assert not accused, (why, accused)
        except GnomonError as error:
            if "\n" in str(error) or not any(one in str(error) for one in (f"{scheme}://", TABLE)):
                raise AssertionError(f"{why}: not one line that names the object: {error}") from error
            lake.proxy.plan = None
            call()
        except Exception as error:
            raise AssertionError(f"{why}: {type(error).__name__}: {error}") from error
        injected[label] += len(made) > nth
        lake.proxy.plan = None
        assert all(open_index(lake.index).fetch_many(list(lake.rows)[:: len(lake.rows) // 20])), why
        if trial % 10 == 9:
            lake.check()
    print(f"{what}: {tried} tried, {sum(injected.values())} answered wrongly, {dict(injected)}")
    lake.check()


# -- rounds ------------------------------------------------------------------------------------------------------------

HONEST = ("no answer", "lost answer", "cut", "500", "503")  # faults that a client can notice
PROGRAMS = ("build", "dedup", "dedup", "compact", "rebucket", "vacuum")


@pytest.mark.process
@pytest.mark.parametrize("rounds", [1, pytest.param(64, marks=pytest.mark.nightly)])
def test_programs_that_meet_faults_and_are_killed_leave_each_row_once(rounds: int, lake: Lake, tmp_path: Path) -> None:
    """Two or three programs at once, one of 25 requests answered with an honest fault, a third of the programs killed.
    Afterwards each batch is appended again, and each key is there once."""
    seed = int(os.environ.get("GNOMON_TEST_SEED", random.randrange(1 << 30)))
    chance, killed, ended, faults = random.Random(seed), 0, Counter[str](), 0

    def plan(request: Request) -> Fault | None:
        nonlocal faults
        fault, kinds = FAULTS[chance.choice(HONEST)]
        if request.kind not in kinds or chance.random() > 0.04:
            return None
        faults += 1
        return fault

    for number in range(rounds):
        lake.add_file()
        lake.proxy.plan = plan
        started = {}
        for place, name in enumerate(chance.sample(PROGRAMS, chance.choice((2, 2, 3)))):
            started[program(lake, name, f"{number} {place}", tmp_path)] = name
        for process in started:
            if chance.random() < 0.34:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(chance.uniform(0.7, 4))
                if process.poll() is None:
                    process.kill()
                    killed += 1
        for process, name in started.items():
            text = process.communicate(timeout=120)[0]
            assert process.returncode in (0, 1, -signal.SIGKILL), f"seed {seed}, round {number}, {name}: {text}"
            assert "Traceback" not in text, f"seed {seed}, round {number}, {name}: {text}"
            ended[name, process.returncode] += 1
        lake.proxy.plan = None
        for place, name in enumerate(started.values()):
            if name == "dedup":
                again = program(lake, name, f"{number} {place}", tmp_path)
                text = again.communicate(timeout=120)[0]
                assert again.returncode == 0, f"seed {seed}, round {number}: {text}"
                lake.rows |= {f"new {number} {place} {nth}": -1 for nth in range(5)}
        lake.check()
    print(f"seed {seed}: {rounds} rounds, {faults} faults, {killed} killed, {dict(ended)}")


def program(lake: Lake, name: str, batch: str, folder: Path) -> "subprocess.Popen[str]":
    """A command of the index in a process of its own, whose output is one text. The batch has known keys, too."""
    more = {"build": ["--engine", "local"], "rebucket": ["--buckets", "3"], "vacuum": ["--grace", "0s"]}.get(name, [])
    if name == "dedup":
        file = folder / f"{batch}.parquet"
        keys = [f"new {batch} {nth}" for nth in range(5)]
        pq.write_table(table(dict.fromkeys([*keys, *list(lake.rows)[:2]], -1)), file)
        more = [str(file), "--batch-id", batch, "--engine", "local"]
    command = [sys.executable, "-m", "gnomon", name, lake.index, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
