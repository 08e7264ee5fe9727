"""Accessibility of the page: axe finds nothing in any view and theme; nothing is cut off at 320 pixels or 200 %."""

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.service.page.lake import MANY
from tests.service.page.looks import COTTON, box, focused, link, open_row

NARROW, WIDE = {"width": 320, "height": 640}, {"width": 1920, "height": 1080}


def start(page: Page, site: str) -> None:
    page.goto(site)
    expect(page.get_by_role("heading", name="13 columns")).to_be_visible()
    page.get_by_text("Options").click()


def row(page: Page, site: str) -> None:
    open_row(page, site, COTTON)
    page.get_by_role("group", name="Views of html").get_by_role("button", name="Rendered").click()
    page.get_by_role("group", name="Views of meta").get_by_role("button", name="Text").click()
    page.get_by_role("button", name="Show all 768 bytes").click()


def rows(page: Page, site: str) -> None:
    open_row(page, site, MANY, query="?limit=3&columns=url,note")


def table(page: Page, site: str) -> None:
    page.goto(site + link("pages", MANY, query="?limit=7"))
    expect(page.get_by_role("region", name="All rows")).to_be_visible()


def comparison(page: Page, site: str) -> None:
    table(page, site)
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("region", name="What differs")).to_be_visible()


def in_range(page: Page, site: str) -> None:
    page.goto(site + link("pages", "https://shop.example/", query="?keys=prefix&limit=30"))
    expect(page.get_by_role("link", name="Next rows")).to_be_visible()


def not_found(page: Page, site: str) -> None:
    page.goto(site + link("pages", "http://shop.example/cotton"))
    expect(page.get_by_role("link", name=f"This key is there: {COTTON}")).to_be_visible()


def refused(page: Page, site: str) -> None:
    page.goto(site + link("orders", "de", "five"))
    expect(page.get_by_role("alert")).to_be_visible()


def health(page: Page, site: str) -> None:
    page.goto(f"{site}#/pages?view=health")
    page.get_by_text("Every snapshot").click()
    page.get_by_text("Every partition").click()


def token(page: Page, site: str) -> None:
    problem = {"title": "Token needed", "status": 401, "detail": "no token"}
    page.route(
        "**/indexes", lambda route: route.fulfill(status=401, json=problem, content_type="application/problem+json")
    )
    page.goto(site)
    expect(page.get_by_role("dialog")).to_be_visible()


def docs(page: Page, site: str) -> None:
    page.goto(f"{site}docs")
    expect(page.get_by_role("heading", name="Failures")).to_be_visible()
    page.get_by_text("Members").first.click()
    alike = ".route:nth-of-type(n + 4):not(#failures)"  # axe takes a second for every ten of them
    page.evaluate("alike => document.querySelectorAll(alike).forEach(route => route.remove())", alike)


@pytest.mark.parametrize(
    "view",
    [start, row, rows, table, comparison, in_range, not_found, refused, health, token, docs],
    ids=lambda view: view.__name__,
)
def test_a_view_has_no_fault_and_fits(page: Page, site: str, view: Callable[[Page, str], None]) -> None:
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    view(page, site)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    found = Axe().run(page, options={"runOnly": ["color-contrast"]})
    assert found.violations_count == 0, found.generate_report()
    for size in (NARROW, WIDE):  # 320 pixels equal 640 pixels at 200 %
        page.set_viewport_size(size)  # type: ignore[arg-type]
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_the_keyboard_reaches_the_answer_first_and_all_else_in_order(page: Page, site: str) -> None:
    open_row(page, site, COTTON)
    page.get_by_role("link", name="Gnomon").focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")  # the link that skips to the answer
    assert focused(page) == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Copy link"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    box(page, "url").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="1 row")).to_be_visible()
    expect(page.locator("#said")).to_contain_text("1 row found")
