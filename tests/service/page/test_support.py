"""The page for a user who looks up one key after another: keyboard, absent keys, versions."""

import decimal
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

from gnomon.service.application import create_app
from gnomon.service.settings.table import Settings
from tests.service.lake import make_orders
from tests.service.page.lake import serving
from tests.service.page.looks import box, focused, link, open_row, value
from tests.shadow.make_index import index_source, write_source

DAYS = 12
BLANKS = "  T 7\t"


def tickets(day: int) -> pa.Table:
    """One ticket with a version in every day, and others."""
    ids = ["T-00001", f"T-1{day:04}", *([BLANKS.strip(), "GROSS", "klein"] if day == 0 else [])]
    n = range(len(ids))
    address = '{"street": "Am Ring 1", "lines": ["a", "b"], "none": {}}'
    return pa.table(
        {
            "id": ids,
            "state": ["open" if day < DAYS - 1 else "closed" for _ in n],
            "note": [f"{'x' * 300} version {day} {'y' * 300}" for _ in n],
            "count": pa.array([day // 4 for _ in n], pa.int32()),
            "paid": pa.array([decimal.Decimal("12.50")] * len(ids), pa.decimal128(10, 2)),
            "address": [address for _ in n],
        }
    )


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service on tickets and orders, with a slash at the end."""
    folder = tmp_path_factory.mktemp("desk")
    write_source(folder / "lake", {f"dt=2026-01-{day + 1:02}/part-0.parquet": tickets(day) for day in range(DAYS)})
    index_source(folder / "lake", folder / "tickets", ["id"], buckets=1)
    orders = make_orders(folder / "o").indexes[0]
    with serving(create_app(Settings(indexes=[f"tickets={folder / 'tickets'}", f"orders={orders}"]))) as address:
        yield f"{address}/"


def selected(page: Page) -> str:
    """The selected text of the focused input."""
    text: str = page.evaluate("document.activeElement.value")
    begin, end = page.evaluate("[document.activeElement.selectionStart, document.activeElement.selectionEnd]")
    return text[begin:end]


def test_keys_are_asked_one_after_the_other_without_a_hand_on_the_mouse(page: Page, desk: str) -> None:
    page.goto(desk)
    expect(box(page, "id")).to_be_focused()
    page.keyboard.type("T-10001")
    page.keyboard.press("Enter")
    expect(value(page, "id")).to_have_text("T-10001")
    expect(box(page, "id")).to_be_focused()
    assert selected(page) == "T-10001"
    page.keyboard.type("T-10002")  # replaces the old key
    page.keyboard.press("Enter")
    expect(value(page, "id")).to_have_text("T-10002")
    page.keyboard.press("/")  # a common shortcut
    assert selected(page) == "T-10002"
    page.keyboard.type("T-10003")
    page.keyboard.press("Enter")
    expect(value(page, "id")).to_have_text("T-10003")
    page.get_by_role("button", name="Copy link").focus()
    page.keyboard.press("/")
    assert (focused(page), selected(page)) == ("key-0", "T-10003")
    page.keyboard.type("/a/b")  # a key that begins with a slash
    expect(box(page, "id")).to_have_value("/a/b")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No row has this key")).to_be_visible()
    assert selected(page) == "/a/b"


def test_a_box_that_is_being_edited_takes_slashes(page: Page, desk: str) -> None:
    open_row(page, desk, "T-10001", index="tickets")
    expect(box(page, "id")).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.type("/x/")
    page.keyboard.press("Control+a")
    page.keyboard.type("/y")
    expect(box(page, "id")).to_have_value("/y")


def test_leaving_a_key_or_an_index_empties_the_box(page: Page, desk: str) -> None:
    open_row(page, desk, "T-10001", index="tickets")
    page.get_by_role("link", name="Look up", exact=True).click()
    expect(page.get_by_role("heading", name="tickets")).to_be_visible()
    expect(box(page, "id")).to_have_value("")
    open_row(page, desk, "T-10001", index="tickets")
    page.get_by_label("Index").select_option("orders")
    expect(box(page, "country")).to_have_value("")
    page.get_by_label("Index").select_option("tickets")
    expect(box(page, "id")).to_have_value("")


def test_blanks_of_a_key_that_is_not_there_are_shown_and_the_key_without_them_is_offered(page: Page, desk: str) -> None:
    page.goto(desk + link("tickets", f"{BLANKS} "))
    detail = page.locator(".not-found .detail")
    expect(detail).to_have_text("U+0020 × 2T 7U+0009U+0020")
    expect(page.get_by_role("link", name="This key is there: T 7")).to_be_visible()


@pytest.mark.parametrize(("typed", "there"), [("gross", "GROSS"), ("KLEIN", "klein"), ("t-10001", "T-10001")])
def test_capital_and_small_letters_are_tried(page: Page, desk: str, typed: str, there: str) -> None:
    page.goto(desk + link("tickets", typed))
    page.get_by_role("link", name=f"This key is there: {there}").click()
    expect(value(page, "id")).to_have_text(there)
    expect(box(page, "id")).to_be_focused()


def test_a_column_of_a_key_of_several_is_tried_in_other_letters(page: Page, desk: str) -> None:
    page.goto(desk + link("orders", "DE", "1"))
    page.get_by_role("link", name="This key is there: de · 1").click()
    expect(value(page, "day")).to_have_text("2026-01-01")


def test_the_window_says_what_became_of_the_question(page: Page, desk: str) -> None:
    for fragment, title in (
        (link("tickets", "none"), "No row · none · tickets · Gnomon"),
        (link("orders", "de", "five"), "The question was not understood · orders · Gnomon"),
        ("#/tickets/a%FFb", "The question was not understood · Gnomon"),
        ("#/tickets/a?where=dt=1&where=dt=2", "The question was not understood · Gnomon"),
        (link("tickets", "none", query="?where=dt=2099-01-01"), "There is no such partition · tickets · Gnomon"),
        (link("tickets", "none", query="?snapshot=99"), "Snapshot not found · tickets · Gnomon"),
        (link("tickets", "T-10001"), "T-10001 · tickets · Gnomon"),
    ):
        page.goto(desk + fragment)
        expect(page).to_have_title(title)


def test_a_partition_that_is_not_there_is_said_and_all_are_offered(page: Page, desk: str) -> None:
    page.goto(desk + link("tickets", "T-10001", query="?where=dt=2099-01-01"))
    expect(page.get_by_role("alert")).to_contain_text("where: no partition has dt=2099-01-01; dt has 12 values, from")
    page.get_by_role("link", name="Ask all partitions, not dt=2099-01-01 alone").click()
    expect(value(page, "id")).to_have_text("T-10001")


def test_a_path_in_an_error_keeps_its_letters(page: Page, desk: str) -> None:
    problem = {"title": "Stale pointer", "status": 409, "detail": "part-0.parquet: the file changed"}
    page.route(
        "**/rows?*", lambda route: route.fulfill(status=409, json=problem, content_type="application/problem+json")
    )
    page.goto(desk + link("tickets", "T-10001"))
    detail = page.locator(".problem .detail")
    expect(detail).to_have_text("part-0.parquet: the file changed")
    shown = "getComputedStyle(document.querySelector('.detail'), '::first-letter').textTransform"
    assert page.evaluate(shown) == "none"


def test_many_rows_of_a_key_begin_as_a_table_with_the_file_of_each(page: Page, desk: str) -> None:
    page.goto(desk + link("tickets", "T-00001"))
    expect(page.get_by_role("heading", name=f"{DAYS} rows")).to_be_visible()
    heads = page.locator(".versions thead th").all_inner_texts()
    assert heads == ["Row", "Partition", "File", "state", "note", "count", "dt"]
    lines = page.locator(".versions tbody tr")
    assert lines.count() == DAYS
    assert lines.nth(3).locator("th, td").all_inner_texts()[:4] == ["4", "dt=2026-01-04", "part-0.parquet", "open"]
    marks = [line.locator("mark").count() for line in lines.all()]
    expect(lines.nth(5).locator("mark").first).to_have_text(re.compile(r"^…x+ version 5 y+…$"))
    assert marks == [0, 2, 2, 2, 3, 2, 2, 2, 3, 2, 2, 3], "note and dt; count each fourth; state in the last"
    expect(page.get_by_text("The same in all of them: id, paid, address.")).to_be_visible()
    page.get_by_role("button", name="Cards").click()
    assert page.locator("section.row").count() == DAYS
    expect(page.locator("section.row h2").nth(1)).to_have_text(f"Row 2 of {DAYS} · dt=2026-01-02/part-0.parquet")


def test_two_versions_are_compared_and_what_differs_is_marked(page: Page, desk: str) -> None:
    page.goto(desk + link("tickets", "T-00001"))
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_label("Compare", exact=True)).to_have_value(str(DAYS - 2))
    lines = page.locator(".pairs tbody tr")
    assert lines.locator("th").all_inner_texts() == ["state", "note", "dt"]
    assert lines.nth(0).locator("mark").all_inner_texts() == ["open", "closed"]
    assert lines.nth(1).locator("mark").all_inner_texts() == ["0", "1"], "version 10, version 11"
    expect(lines.nth(1).locator("td").first).to_have_text(re.compile(r"^…x+ version 10 y+…$"))
    page.get_by_label("Compare", exact=True).select_option("0")
    page.get_by_label("with", exact=True).select_option("1")
    assert lines.locator("th").all_inner_texts() == ["note", "dt"]
    page.get_by_label("with", exact=True).select_option("0")
    expect(page.get_by_text("These two rows are the same in every column.")).to_be_visible()


def test_a_nested_value_stands_on_the_line_of_its_name_and_decimals_look_like_numbers(page: Page, desk: str) -> None:
    open_row(page, desk, "T-10001", index="tickets")
    lines = value(page, "address").locator("> details > ul > li")
    assert [line.inner_text().split("\n")[0] for line in lines.all()] == [
        "street: “Am Ring 1”",
        "lines: 2 items",
        "none: { } no members",
    ]
    lefts = [line.locator(".name").first.bounding_box() for line in lines.all()]
    assert all(place is not None for place in lefts)
    lines.nth(1).locator("summary").scroll_into_view_if_needed()
    closed = lines.nth(1).locator("summary").bounding_box()
    lines.nth(1).locator("summary").click()
    assert lines.nth(1).locator("summary").bounding_box() == closed, "open and closed stand alike"
    colours = "name => getComputedStyle([...document.querySelectorAll('.line')].find(line => "
    colours += "line.querySelector('.column').textContent === name).querySelector('.number')).color"
    assert page.evaluate(colours, "paid") == page.evaluate(colours, "count")


def test_steps_that_are_alike_are_one_line_with_their_count(page: Page, desk: str) -> None:
    page.goto(desk + link("tickets", "T-10001"))
    steps = page.locator(".steps > li")
    expect(steps.filter(has_text="the key is not in this file")).to_have_count(1)
    expect(steps.filter(has_text="the key is not in this file")).to_contain_text(f"{DAYS - 1} × Bloom filter asked")
    total = page.locator(".path summary").inner_text()
    assert int(total.split()[0]) > steps.count()


def test_the_desk_is_used_by_path_prefix_too(page: Page, tmp_path: Path) -> None:
    settings = make_orders(tmp_path)
    with serving(create_app(replace(settings, root_path="/gnomon"))) as address:
        page.goto(f"{address}/gnomon/#/shadow/de/1")
        expect(value(page, "day")).to_have_text("2026-01-01")
        page.get_by_role("link", name="API").click()
        expect(page.get_by_role("heading", name="Routes")).to_be_visible()
        assert page.url == f"{address}/gnomon/docs"


def test_the_routes_show_the_members_of_each_answer_that_one_may_give(page: Page, site: str) -> None:
    page.goto(f"{site}docs")
    route = page.locator("#get-rows")
    for shape, member in (("RowsAnswer", "key"), ("RangeAnswer", "next")):
        route.get_by_text(f"Members of {shape}").click()
        expect(
            route.locator("details[open] > .members > li > code", has_text=re.compile(f"^{member}$"))
        ).to_be_visible()
