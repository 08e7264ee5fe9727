"""One browser, one server and one lake for the folder. They end with the last of its tests: Playwright's event loop is
in the way of others that a process runs afterwards."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from gnomon.service.app import create_app
from tests.service.page.lake import make_lake, serving

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
REQUIRED = "GNOMON_TEST_BROWSER"
MOST_MILLISECONDS = 30_000  # of a wait that ends as soon as it may: a busy machine must fail no test


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
    """The address of a service over the lake, a slash at its end."""
    with serving(create_app(make_lake(tmp_path_factory.mktemp("page")))) as address:
        yield f"{address}/"


@pytest.fixture(scope="package")
def context(browser: Browser, site: str) -> Iterator[BrowserContext]:
    """What all pages share: the cache of the browser, and what is stored beyond a tab."""
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
    """A folder for the lake of one test, which it may break."""
    return tmp_path
