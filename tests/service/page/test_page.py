"""The page at `/` in a real browser: its requests, its answers, its messages."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import httpx
import pyarrow as pa
from playwright.sync_api import Browser, Page, Request, Response, expect

from gnomon.service.application import create_app
from gnomon.service.settings.table import Settings
from gnomon.service.token_lines import new_token
from tests.service.lake import make_orders
from tests.service.page.lake import BINARY, MANY, MANY_ROWS, URLS, serving
from tests.service.page.looks import COTTON, box, focused, link, open_row, text_of, value
from tests.shadow.make_index import index_source, write_source


def of_a_key(response: Response) -> bool:
    """Whether it is the answer to a key; the page also asks for keys to try."""
    return "/rows?" in response.url and "_reverse=" not in response.url


def asked_again(response: Response) -> httpx.Response:
    """The service's answer to the request of the page, which has the status that the page got.

    Chromium once handed out no bytes of an answer; why is not known. The page's answers are never kept by its cache."""
    answer = httpx.get(response.url)
    assert answer.status_code == response.status
    return answer


def test_a_typed_key_shows_its_row_under_a_link_that_opens_it_again(page: Page, site: str) -> None:
    page.goto(site)
    box(page, "url").fill(COTTON)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="1 row")).to_be_visible()
    assert unquote(page.url) == f"{site}#/pages/{COTTON}"
    assert focused(page) == "key-0"
    page.reload()
    expect(value(page, "url")).to_have_text(COTTON)
    expect(box(page, "url")).to_have_value(COTTON)


def test_back_and_forward_go_from_key_to_key(page: Page, site: str) -> None:
    open_row(page, site, COTTON)
    box(page, "url").fill("a/b")
    page.get_by_role("button", name="Ask").click()
    expect(value(page, "url")).to_have_text("a/b")
    page.go_back()
    expect(value(page, "url")).to_have_text(COTTON)
    page.go_forward()
    expect(value(page, "url")).to_have_text("a/b")
    expect(box(page, "url")).to_have_value("a/b")


def test_every_odd_key_is_asked_for_exactly_when_typed_and_by_its_link(page: Page, site: str) -> None:
    page.goto(site)
    for key in URLS:
        with page.expect_response(of_a_key) as linked:
            page.evaluate("fragment => { location.hash = fragment }", link("pages", key))
        assert asked_again(linked.value).json()["key"] == {"url": key}, "by its link"
        expect(page.get_by_role("button", name="Ask")).to_be_visible()
        with page.expect_response(of_a_key) as typed:
            if "\n" not in key:  # an input cannot hold it: the request of the link is repeated
                box(page, "url").fill(key)
            box(page, "url").press("Enter")
        assert asked_again(typed.value).json()["key"] == {"url": key}, "typed"


def test_values_are_shown_to_the_last_digit_and_character(page: Page, site: str) -> None:
    open_row(page, site, COTTON)
    assert text_of(page, "merchant") == str(2**53 + 1)
    assert text_of(page, "unsigned") == str(2**64 - 1)
    assert text_of(page, "price") == "12345678901234567890.10"
    assert text_of(page, "score") == "NaN"
    assert text_of(page, "crawled_at") == "2026-01-01T12:00:00.123456Z"
    assert text_of(page, "robots") == "null"
    assert text_of(page, "note") == "right U+202Eto left, a nul U+0000, and U+FFFD itself"
    expect(value(page, "meta").locator("li").first).to_have_text("big: 12345678901234567890")
    members = value(page, "meta").locator("> details > ul > li")
    names = [member.locator(".name").first.inner_text().split(":")[0] for member in members.all()]
    assert names == ["big", "price", "__proto__", "2", "1", "tags"], "in the order they stand in"
    expect(value(page, "offers")).to_contain_text(str(2**60 + 1))


def test_bytes_are_shown_in_hexadecimal_beside_their_characters(page: Page, site: str) -> None:
    open_row(page, site, COTTON)
    value(page, "raw").get_by_role("button", name=f"Show all {len(BINARY)} bytes").click()
    lines = value(page, "raw").locator("pre").inner_text().splitlines()
    assert lines[4] == "00000040  40 41 42 43 44 45 46 47  48 49 4a 4b 4c 4d 4e 4f  @ABCDEFGHIJKLMNO"
    assert bytes.fromhex("".join(line[10:58] for line in lines)) == BINARY


def test_a_long_text_is_folded_until_asked_for(page: Page, site: str) -> None:
    open_row(page, site, COTTON)
    html = value(page, "html")
    expect(html).not_to_contain_text("Paragraph 29")
    html.get_by_role("button", name="Show all").click()
    expect(html).to_contain_text("Paragraph 29")
    html.get_by_role("button", name="Show less").click()
    expect(html).not_to_contain_text("Paragraph 29")


def test_html_is_rendered_on_demand_alone_and_can_do_nothing(page: Page, site: str) -> None:
    open_row(page, site, COTTON)
    assert page.locator("iframe").count() == 0
    started = list[Request]()
    page.on("request", lambda request: started.append(request))  # noqa: PLW0108 - playwright marks its handlers
    page.get_by_role("group", name="Views of html").get_by_role("button", name="Rendered").click()
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("heading", name="Cotton bicycle")).to_be_visible()
    assert page.locator("iframe").get_attribute("sandbox") == ""
    frame.get_by_text("Made of").click()
    frame.locator("#out").click()  # the link is not followed
    page.get_by_role("group", name="Views of html").get_by_role("button", name="Text").click()
    assert page.evaluate("window.pwned") is None
    # Chromium may report a request of its preloader that the policy then refuses: what counts is that none is answered.
    assert [request.url for request in started if request.url.endswith("/healthz") and request.response()] == []


def test_comments_without_end_do_not_hold_the_page_up(page: Page, site: str) -> None:
    page.goto(site)
    views = page.wait_for_function(
        """async () => {
            const { viewsOf } = await import("/page/values.js");
            const comments = "<!-- a -->\\n".repeat(400);
            return [comments, `${comments}<p>text`].map((text) => viewsOf(text, "string", "html").length).join();
        }""",
        timeout=20_000,
    )
    assert views.json_value() == "1,2"


def test_the_download_holds_the_bytes_of_the_answer(page: Page, site: str) -> None:
    with page.expect_response(of_a_key) as answered:
        open_row(page, site, COTTON)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSON").click()
    assert Path(download.value.path()).read_bytes() == answered.value.body()


def test_a_value_and_a_command_that_works_are_copied(page: Page, site: str) -> None:
    for key in ("it's", "a+b c", "."):
        open_row(page, site, key)
        page.get_by_role("button", name="Copy as curl").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        program, url = shlex.split(page.evaluate("navigator.clipboard.readText()"))
        assert program == "curl"
        assert httpx.get(url).json()["key"] == {"url": key}
        page.goto("about:blank")
    open_row(page, site, COTTON)
    page.get_by_role("button", name="Copy meta").click()
    expect(page.get_by_role("button", name="Copy meta")).to_have_text("Copied")
    assert '"big": 12345678901234567890' in page.evaluate("navigator.clipboard.readText()")


def test_a_key_of_two_columns_has_two_boxes_and_may_hold_null(page: Page, site: str) -> None:
    page.goto(f"{site}#/orders")
    box(page, "country").fill("de")
    box(page, "id").fill("2")
    page.get_by_role("button", name="Ask").click()
    expect(value(page, "day")).to_have_text("2026-01-02")
    assert page.url.endswith("#/orders/de/2")
    page.get_by_role("checkbox", name="country is null").check()
    box(page, "id").fill("3")
    page.keyboard.press("Enter")
    expect(value(page, "country")).to_have_text("null")
    page.reload()
    expect(value(page, "day")).to_have_text("2026-01-03")


def test_options_narrow_the_answer_and_stand_in_the_link(page: Page, site: str) -> None:
    page.goto(site + link("pages", MANY))
    expect(page.get_by_role("heading", name=f"{MANY_ROWS} rows, the first 100 shown")).to_be_visible()
    page.get_by_text("Options").click()
    page.get_by_role("checkbox", name="merchant").check()
    page.get_by_label("Most rows").fill("2")
    page.get_by_label("Only where dt is").fill("2026-01-04")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("heading", name=f"{MANY_ROWS} rows, the first 2 shown")).to_be_visible()
    assert page.locator(".column").all_inner_texts() == ["merchant", "merchant"]
    assert page.url.endswith(f"#/pages/{MANY}?columns=merchant&where=dt=2026-01-04&limit=2")


def test_an_older_snapshot_is_asked_where_it_is_chosen(page: Page, site: str) -> None:
    page.goto(f"{site}{link('pages', MANY, query='?snapshot=1')}")
    expect(page.get_by_role("heading", name="No row has this key")).to_be_visible()
    expect(page.get_by_text("Snapshot 1 covers")).to_be_visible()
    page.get_by_role("link", name="Ask the newest snapshot").click()
    expect(page.get_by_role("heading", name=f"{MANY_ROWS} rows, the first 100 shown")).to_be_visible()


def test_a_missing_key_is_told_with_what_is_covered_and_a_spelling_that_is_there(page: Page, site: str) -> None:
    page.goto(site + link("pages", "http://shop.example/cotton", query="?where=dt=2026-01-01"))
    expect(page.get_by_role("heading", name="No row has this key")).to_be_visible()
    expect(page.get_by_role("link", name="Ask all partitions, not dt=2026-01-01 alone")).to_be_visible()
    page.get_by_role("link", name=f"This key is there: {COTTON}").click()
    expect(value(page, "url")).to_have_text(COTTON)


def test_a_key_of_the_wrong_type_marks_its_box_and_keeps_what_was_typed(page: Page, site: str) -> None:
    page.goto(f"{site}#/orders")
    box(page, "country").fill("de")
    box(page, "id").fill("five")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="The question was not understood")).to_be_visible()
    expect(box(page, "id")).to_have_attribute("aria-invalid", "true")
    expect(box(page, "id")).to_have_value("five")
    words = "a whole number from -2,147,483,648 to 2,147,483,647, like 42."
    expect(box(page, "id")).to_have_accessible_description(f"a whole number Type {words}")
    expect(page.get_by_role("alert")).to_contain_text(f"The box “id” takes {words}")
    expect(page.get_by_role("alert")).not_to_contain_text("bigint")
    assert focused(page) == "key-1"


def test_a_link_that_is_no_utf_8_is_refused_and_not_replaced(page: Page, site: str) -> None:
    page.goto(f"{site}#/pages/a%FFb")
    expect(page.get_by_role("heading", name="The question was not understood")).to_be_visible()
    expect(page.get_by_text("a%FFb")).to_be_visible()
    assert "\ufffd" not in page.content()


def test_a_slash_goes_to_the_box_and_is_typed_within_it(page: Page, site: str) -> None:
    open_row(page, site, COTTON)
    page.get_by_role("link", name="Health").focus()
    page.keyboard.press("/")
    assert focused(page) == "key-0"
    page.keyboard.press("End")
    page.keyboard.type("/x")
    expect(box(page, "url")).to_have_value(f"{COTTON}/x")


def test_an_index_that_cannot_be_read_is_said_kindly_and_asked_again_when_it_may_be(
    browser: Browser, lake: Path
) -> None:
    settings = make_orders(lake)
    files = list((lake / "shadow").glob("*.btree.avro"))
    with serving(create_app(settings)) as address, browser.new_page() as page:
        for file in files:
            file.rename(file.with_suffix(".away"))
        page.clock.install()
        page.goto(f"{address}/#/shadow/de/1")
        expect(page.get_by_role("heading", name="Not available just now")).to_be_visible()
        expect(page.get_by_text("Request id", exact=True)).to_be_visible()
        for file in files:
            file.with_suffix(".away").rename(file)
        again = page.get_by_role("button", name="Try again")
        expect(again).to_have_attribute("aria-disabled", "true")
        again.click(force=True)  # too early: no request is sent
        page.clock.run_for(6_000)
        expect(again).to_have_text("Try again")
        again.click()
        expect(value(page, "day")).to_have_text("2026-01-01")


def test_an_index_that_is_not_open_leaves_the_others_within_reach(browser: Browser, lake: Path) -> None:
    [orders] = make_orders(lake).indexes
    settings = Settings(indexes=(f"closed={lake / 'none'}", f"orders={orders}"), hidden_columns={"orders": ("day",)})
    with serving(create_app(settings, patient=True)) as address, browser.new_page() as page:
        page.goto(address)
        expect(page.get_by_role("heading", name="Not available just now")).to_be_visible()
        page.get_by_label("Index").select_option("orders")
        expect(page.get_by_role("heading", name="2 columns")).to_be_visible()
        page.goto(f"{address}/#/nothing")
        expect(page.get_by_role("heading", name="No such index")).to_be_visible()
        page.get_by_label("Index").select_option("orders")
        box(page, "country").fill("fr")
        page.get_by_role("checkbox", name="id is null").check()
        page.get_by_role("button", name="Ask").click()
        expect(value(page, "id")).to_have_text("null")


def test_a_token_is_asked_for_where_it_is_needed_and_all_that_was_typed_stays(browser: Browser, lake: Path) -> None:
    secret, token = new_token("support")
    settings = Settings(indexes=make_orders(lake).indexes, tokens=(token.line,))
    with serving(create_app(settings)) as address, browser.new_page() as page:
        page.goto(f"{address}/#/shadow/de/1")
        expect(page.get_by_role("dialog")).to_be_visible()
        assert focused(page) == "token"
        said = page.locator("#token-why")
        expect(said).to_contain_text("Rows are shown to people who have a token.")
        expect(said).to_contain_text("begins with gnomon_; whoever runs this service gives it out.")
        expect(said).not_to_contain_text("Authorization")
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        expect(said).to_contain_text("This token is not known. Paste it again as a whole, or another one.")
        expect(page.get_by_label("Token", exact=True)).to_have_value("")
        page.keyboard.type(secret)
        page.keyboard.press("Enter")
        expect(value(page, "day")).to_have_text("2026-01-01")
        assert page.evaluate("[sessionStorage.length, localStorage.length]") == [1, 0]
        assert secret not in page.url
        assert page.get_by_role("search").inner_text().split()[0] == "country", "no choice of one index"
        page.get_by_role("link", name="Health").click()
        expect(page.get_by_role("main")).to_have_text(re.compile(r"^\s*shadow"))
        expect(page.locator("#main > *")).to_have_count(1)
        page.go_back()
        expect(value(page, "day")).to_have_text("2026-01-01")
        box(page, "id").fill("2")
        page.evaluate("sessionStorage.setItem('gnomon-token', 'no longer known')")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        expect(page.locator("#key-1")).to_have_value("2")
        page.keyboard.type(secret)
        page.keyboard.press("Enter")
        expect(value(page, "day")).to_have_text("2026-01-02")
        assert focused(page) == "key-1"
        page.get_by_role("button", name="Forget token").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("heading", name="A token is needed")).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text("whoever runs this service gives it out.")
        expect(page.get_by_role("alert")).not_to_contain_text("Authorization")


def test_the_path_of_a_look_up_is_drawn(page: Page, site: str) -> None:
    open_row(page, site, COTTON)
    path = page.locator("section.path")
    expect(path.get_by_role("heading", name="How it was found")).to_be_visible()
    assert path.locator(".stage").all_inner_texts() == ["Bucket", "Index", "Source", "Pages", "Together"]
    steps = path.locator(".steps > li")
    said = steps.locator(".what").all_inner_texts()
    for begin in (
        "Key read",
        "Bloom filter asked",
        "Index file",
        "Root node",
        "Source file",
        "Values decoded",
        "Key of the row",
    ):
        assert [text for text in said if text.startswith(begin)], begin
    expect(steps.filter(has_text="Source file opened")).to_contain_text("dt=2026-01-01/p.parquet")
    assert len(steps.locator("svg[aria-hidden=true] rect").all()) == len(said)
    page.reload()
    expect(steps.filter(has_text="from memory").first).to_be_visible()


def test_health_shows_rows_snapshots_partitions_and_buckets(page: Page, site: str) -> None:
    open_row(page, site, COTTON)
    page.get_by_role("link", name="Health").click()
    expect(page.get_by_role("img", name="Rows of each bucket")).to_be_visible()
    expect(
        page.get_by_role("img", name="Rows of each snapshot: 4 kept, from 17 rows in snapshot 1 to 347 in 4")
    ).to_be_visible()
    page.get_by_text("Every partition").click()
    expect(page.get_by_role("region", name="Every partition").get_by_role("row")).to_have_count(5)
    expect(page.get_by_text("347", exact=True)).to_be_visible()


def test_health_of_400_partitions_and_4096_buckets_is_a_few_shapes(page: Page, site: str) -> None:
    info = httpx.get(f"{site}indexes/pages").json()
    one = info["partitions"][0]
    info["partitions"] = [{**one, "partition": f"dt={i:04}", "rows": i} for i in range(400)]
    info["partitions_total"] = 3650
    info["bucket_rows"], info["bucket_bytes"] = list(range(4096)), [1] * 4096
    page.route("**/indexes/pages", lambda route: route.fulfill(json=info))
    page.goto(f"{site}#/pages?view=health")
    expect(page.get_by_text("the newest 400 of 3,650")).to_be_visible()
    expect(page.get_by_text("4,095 in the largest: 2.00 times as many")).to_be_visible()
    assert page.locator("svg.chart *").count() < 20


def test_the_theme_is_switched_and_remembered(page: Page, site: str) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(site)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Dark colours").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == dark
    page.evaluate("localStorage.clear()")


def test_nothing_is_asked_of_anybody_else(page: Page, site: str) -> None:
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    open_row(page, site, COTTON)
    page.get_by_role("link", name="Health").click()
    expect(page.get_by_role("img", name="Rows of each bucket")).to_be_visible()
    page.get_by_role("link", name="API").click()
    expect(page.get_by_role("heading", name="Routes")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert asked
    assert [url for url in asked if not url.startswith((site, "data:", "blob:"))] == []


def keys_shown(page: Page) -> list[str]:
    """The first column of the table of rows, behind their numbers."""
    return page.get_by_role("region", name="All rows").locator("tbody tr td:nth-child(2)").all_inner_texts()


def test_keys_that_begin_with_a_text_are_shown_in_order_page_by_page(page: Page, site: str) -> None:
    page.goto(f"{site}#/pages?columns=url,merchant&limit=50")
    box(page, "url").fill("https://shop.example/3/")
    page.get_by_label("Rows of").select_option("the keys that begin with it")
    page.get_by_role("button", name="Ask").click()
    expected = sorted(f"https://shop.example/3/{i}" for i in range(120))
    for begin, told in ((0, "50 rows, more follow"), (50, "50 rows, more follow"), (100, "20 rows")):
        expect(page.get_by_role("region", name="All rows")).to_contain_text(expected[begin])
        expect(page.get_by_role("heading", name=told, exact=True)).to_be_visible()
        assert keys_shown(page) == expected[begin : begin + 50]
        expect(box(page, "url")).to_have_value("https://shop.example/3/")
        if begin < 100:
            page.get_by_role("link", name="Next rows").click()
    expect(page.get_by_role("link", name="Next rows")).to_have_count(0)
    page.go_back()
    expect(page.get_by_role("region", name="All rows")).to_contain_text(expected[50])
    page.reload()
    expect(page.get_by_role("region", name="All rows")).to_contain_text(expected[50])
    page.get_by_role("link", name="7", exact=True).click()
    expect(value(page, "url")).to_have_text(expected[56])
    expect(page.get_by_label("Rows of")).to_have_value("")


def test_keys_from_one_on_and_backwards_are_shown(page: Page, site: str) -> None:
    page.goto(f"{site}#/orders")
    for kind, keys in (("the keys from it on", ["de", "fr"]), ("the keys up to it, backwards", ["de", "de", "null"])):
        box(page, "country").fill("de")
        box(page, "id").fill("2")
        page.get_by_label("Rows of").select_option(kind)
        page.keyboard.press("Tab")
        page.get_by_role("button", name="Ask").click()
        expect(page.get_by_role("heading", name=f"{len(keys)} rows", exact=True)).to_be_visible()
        assert keys_shown(page) == keys
    box(page, "country").fill("")
    box(page, "id").fill("")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("heading", name="4 rows", exact=True)).to_be_visible()
    assert keys_shown(page) == ["fr", "de", "de", "null"], "from the last key on"


def test_a_range_without_a_key_is_told_and_a_wrong_end_marks_its_box(page: Page, site: str) -> None:
    page.goto(site + link("pages", "zzz", query="?keys=prefix"))
    expect(page.get_by_role("heading", name="No key in this range")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("none of them has a key in this range")
    page.goto(site + link("orders", "de", "five", query="?keys=from"))
    expect(page.get_by_role("heading", name="The question was not understood")).to_be_visible()
    expect(box(page, "id")).to_have_attribute("aria-invalid", "true")
    page.goto(site + link("orders", "", "", query="?keys=from&null=country"))
    expect(page.get_by_text("A range has no null as its end")).to_be_visible()


def test_a_first_visitor_is_offered_keys_to_try(page: Page, site: str) -> None:
    page.goto(site)
    offered = page.locator(".examples a")
    expect(offered).to_have_text(["empty text", "%ff", "."])
    offered.nth(1).click()
    expect(value(page, "url")).to_have_text("%ff")
    page.goto(f"{site}#/orders")
    page.locator(".examples a").nth(1).click()
    expect(value(page, "country")).to_have_text("de")


def test_an_index_that_shows_no_keys_offers_none(page: Page, lake: Path) -> None:
    settings = replace(make_orders(lake), hidden_columns={"shadow": ["country"]})
    with serving(create_app(settings)) as address:
        with page.expect_response(lambda response: "_reverse=false" in response.url) as refused:
            page.goto(address)
        assert refused.value.status == 400
        expect(page.get_by_role("heading", name="shadow")).to_be_visible()
        expect(page.locator(".examples")).to_be_hidden()


def test_a_pasted_key_keeps_its_line_ends(page: Page, site: str) -> None:
    page.goto(site)

    def paste(text: str) -> None:
        page.evaluate("text => navigator.clipboard.writeText(text)", text)
        page.keyboard.press("Control+V")

    def asked() -> str:
        with page.expect_response(of_a_key) as response:
            page.keyboard.press("Enter")
        key: str = asked_again(response.value).json()["key"]["url"]
        return key

    box(page, "url").fill("")
    box(page, "url").focus()
    paste("line\nend\n")
    expect(page.get_by_text("This key holds line ends")).to_be_visible()
    assert asked() == "line\nend\n"
    page.keyboard.press("Home")
    paste("x")  # what is pasted next goes to its place in the key
    assert asked() == "xline\nend\n"
    page.keyboard.press("Control+A")
    paste("a/b")
    expect(page.get_by_text("This key holds line ends")).to_be_hidden()
    assert asked() == "a/b"
    page.keyboard.press("Control+A")
    paste("second\r\nline")
    page.keyboard.type("!")  # a box that is edited has what it shows
    assert asked() == "second line!"


def test_a_box_filters_many_columns(page: Page, lake: Path) -> None:
    names = [f"column_{number:03}" for number in range(200)]
    write_source(lake / "lake", {"a.parquet": pa.table({"id": [1], **{name: [name] for name in names}})})
    index_source(lake / "lake", lake / "shadow", ["id"])
    with serving(create_app(Settings(indexes=[str(lake / "shadow")]))) as address:
        page.goto(f"{address}#/shadow/1")
        lines, chips = page.locator(".line"), page.locator(".chip")
        expect(lines).to_have_count(201)
        page.locator("article").get_by_label("Filter the columns").fill("COLUMN_19")
        expect(lines.filter(visible=True)).to_have_count(10)
        page.locator("article").get_by_label("Filter the columns").fill("")
        expect(lines.filter(visible=True)).to_have_count(201)
        page.get_by_text("Options").click()
        box_of_options = page.locator("form").get_by_label("Filter the columns")
        box_of_options.fill("column_007")
        expect(chips.filter(visible=True)).to_have_count(1)
        chips.filter(visible=True).click()
        box_of_options.fill("")
        page.get_by_role("button", name="Ask").click()
        expect(lines).to_have_count(1)
        expect(page.locator("article").get_by_label("Filter the columns")).to_have_count(0)
