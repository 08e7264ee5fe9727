"""Actions of tests on the page, and reads from it."""

import re
from urllib.parse import quote

from playwright.sync_api import Locator, Page, expect

COTTON = "https://shop.example/cotton/"


def link(index: str, *key: str, query: str = "") -> str:
    return f"#/{index}/" + "/".join(quote(part, safe="") for part in key) + query


def open_row(page: Page, site: str, *key: str, index: str = "pages", query: str = "") -> None:
    """Open the link of a key, and wait for its row."""
    page.goto(site + link(index, *key, query=query))
    expect(page.locator("section.row").first).to_be_visible()


def box(page: Page, column: str) -> Locator:
    """The input of a key column."""
    return page.get_by_role("textbox", name=column, exact=True)


def value(page: Page, column: str) -> Locator:
    """The value of a column in the first row."""
    name = re.compile(rf"^{re.escape(column)}$")
    return (
        page.locator("section.row").first.locator(".line", has=page.locator(".column", has_text=name)).locator(".shown")
    )


def text_of(page: Page, column: str) -> str:
    return value(page, column).inner_text()


def focused(page: Page) -> str:
    found: str = page.evaluate("document.activeElement.id")
    return found
