"""One browser, one server and one lake for the folder. They end with the last of its tests, since Playwright's event
loop disturbs other loops of the process."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from gnomon.service.application import create_app
from tests.service.page.lake import make_lake, serving

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
REQUIRED = "GNOMON_TEST_BROWSER"
MOST_MILLISECONDS = 30_000  # timeout of a wait, which ends as soon as possible: a busy machine must not fail a test


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        why = f"no {', '.join(PROGRAMS)} on the PATH; deploy/setup.sh --browser installs one"
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(f"{why} ({REQUIRED}=required)")
        pytest.skip(why)
    expect.set_options(timeout=MOST_MILLISECONDS)
    with sync_playwright() as playwright:
        # A container has no user namespaces for the sandbox, and little memory in /dev/shm.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service on the lake, with a slash at the end."""
    with serving(create_app(make_lake(tmp_path_factory.mktemp("page")))) as address:
        yield f"{address}/"


@pytest.fixture(scope="package")
def context(browser: Browser, site: str) -> Iterator[BrowserContext]:
    """The browser context of all pages, with their cache and storage."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site)
        yield context


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page whose scripts must not fail."""
    page, errors = context.new_page(), list[str]()
    page.set_default_timeout(MOST_MILLISECONDS)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    page.close()
    assert not errors


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder for the lake of one test, which may damage it."""
    return tmp_path
