"""service/settings/table.py: one table, which the docs show; values from flags, pairs, the environment and a file."""

import pickle
import re
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import pytest

from gnomon.service.settings.sources import PREFIX
from gnomon.service.settings.table import FIELDS, Settings, load_settings
from gnomon.shadow import UsageError

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"
SECRET = "nightly sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"


def settings_table() -> str:
    """The settings as the Markdown table of `docs/reference/settings.md`."""
    lines = ["| setting | variable | unit | default | what it does |", "|---|---|---|---|---|"]
    for name, field in FIELDS.items():
        default = "required" if field.default is MISSING else f"`{_shown(field.default)}`"
        lines.append(f"| `{name}` | `{PREFIX}{name.upper()}` | {field.unit} | {default} | {field.help} |")
    return "\n".join(lines) + "\n"


def _shown(default: Any) -> str:
    if default is None or default in ("", (), {}):
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_the_docs_page_shows_the_table() -> None:
    assert settings_table() in PAGE.read_text()


def test_each_setting_has_a_unit_and_one_sentence() -> None:
    for name, field in FIELDS.items():
        assert field.unit, name
        assert field.help.endswith("."), name
        assert ". " not in field.help, name


def test_only_this_machine_is_listened_to_unless_told() -> None:
    assert Settings(indexes=["x"]).host == "127.0.0.1"


def test_a_flag_wins_over_a_pair_that_over_the_environment_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text('indexes = ["/of/file"]\nport = 1\nthreads = 1\nworkers = 1\nmax_rows = 1\nhost = "file"\n')
    environment = {"GNOMON_CONFIG": str(file), "GNOMON_PORT": "2", "GNOMON_THREADS": "2", "GNOMON_WORKERS": "2"}
    settings = load_settings({"port": "4", "host": None}, ["port=3", "threads=3"], None, environment)
    found = (settings.port, settings.threads, settings.workers, settings.max_rows, settings.host)
    assert found == (4, 3, 2, 1, "file")
    assert settings.indexes == ("/of/file",)
    assert settings.max_key_bytes == 16_384


def test_a_variable_that_replaces_a_setting_of_the_file_is_a_line_with_both_places(tmp_path: Path) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text(
        'host = "10.0.0.5"\nindexes = ["/a"]\nidle_seconds = 5\ntimeout_seconds = 5\nport = 1\nthreads = 1\n'
    )
    environment = {
        "GNOMON_HOST": "0.0.0.0",
        "GNOMON_INDEXES": "/b,/c",
        "GNOMON_TIMEOUT_SECONDS": "5.0",  # as in the file
        "GNOMON_PORT": "2",  # a flag replaces both
        "GNOMON_WORKERS": "3",  # not in the file
    }
    settings = load_settings({"port": 3}, ["threads=2"], str(file), environment)
    assert settings.overridden == (
        f"""GNOMON_INDEXES=["/b", "/c"] replaces {file}, line 2: indexes = ["/a"]""",
        f"GNOMON_HOST='0.0.0.0' replaces {file}, line 1: host = '10.0.0.5'",
    )
    assert (settings.host, settings.port) == ("0.0.0.0", 3)


def test_the_line_of_a_replaced_secret_shows_no_value(tmp_path: Path) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text(f'indexes = ["/a"]\ntokens = ["{SECRET}"]\n')
    other = SECRET.replace("nightly", "daily")
    [line] = load_settings({}, (), str(file), {"GNOMON_TOKENS": other}).overridden
    assert line == f"GNOMON_TOKENS replaces {file}, line 2: tokens (the values are not shown)"


def test_a_default_of_an_image_gives_way_to_every_other_place(tmp_path: Path) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text('indexes = ["/a"]\nhost = "10.0.0.5"\n')
    image = {"GNOMON_DEFAULT_HOST": "0.0.0.0", "GNOMON_DEFAULT_PORT": "80"}
    settings = load_settings({}, (), str(file), image)
    assert (settings.host, settings.port, settings.overridden) == ("10.0.0.5", 80, ())
    assert load_settings({"indexes": ["/a"]}, (), None, image).host == "0.0.0.0"
    assert load_settings({"indexes": ["/a"]}, (), None, {**image, "GNOMON_HOST": "::1"}).host == "::1"
    with pytest.raises(UsageError, match="HOSTT: no setting has this variable; did you mean GNOMON_DEFAULT_HOST"):
        load_settings({"indexes": ["/a"]}, (), None, {"GNOMON_DEFAULT_HOSTT": "x"})
    with pytest.raises(UsageError, match="GNOMON_DEFAULT_PORT: expected a whole number from 0 to 65535, found 'x'"):
        load_settings({"indexes": ["/a"]}, (), None, {"GNOMON_DEFAULT_PORT": "x"})


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_INDEXES", "/shadow, b=/two")
    monkeypatch.setenv("GNOMON_THREADS", "3")
    settings = load_settings({"port": 82})
    assert (settings.indexes, settings.port, settings.threads) == (("/shadow", "b=/two"), 82, 3)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("indexes=a, b=/two", ("a", "b=/two")),
        ('indexes=["a,b"]', ("a,b",)),
        ("access_log=false", False),
        ("access_log=On", True),
        ("timeout_seconds=2", 2.0),
        ("timeout_seconds=.5", 0.5),
        ("timeout_seconds=1e1", 10.0),
        ("max-rows=12", 12),
        ("cors_origins=[]", ()),
        ('columns={"a": ["url", "title"]}', {"a": ("url", "title")}),
    ],
)
def test_texts_are_read_by_the_type_of_their_setting(text: str, value: Any) -> None:
    name = text.partition("=")[0].replace("-", "_")
    found = getattr(load_settings({}, ["indexes=x", text] if name != "indexes" else [text], None, {}), name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("port=http", "--set port: expected a whole number from 0 to 65535, found 'http'"),
        ("port=70000", "--set port: expected a whole number from 0 to 65535, found 70000"),
        ("port=8_0", "--set port: expected a whole number from 0 to 65535, found '8_0'"),
        ("port=80.0", "--set port: expected a whole number from 0 to 65535, found '80.0'"),
        ("port=٨", "--set port: expected a whole number from 0 to 65535, found '٨'"),
        ("max_rows=0", "--set max_rows: expected a whole number from 1 on, found 0"),
        ("timeout_seconds=0", "--set timeout_seconds: expected a number above 0, at most 86400, found 0.0"),
        ("timeout_seconds=inf", "--set timeout_seconds: expected a number above 0, at most 86400, found 'inf'"),
        ("requests_per_second=nan", "--set requests_per_second: expected a number from 0 on, found 'nan'"),
        ("requests_per_second=1e400", "--set requests_per_second: expected a number from 0 on, found Infinity"),
        ("coverage_seconds=nan", "--set coverage_seconds: expected a number from 0.01 to 86400, found 'nan'"),
        ("coverage_seconds=1e400", "--set coverage_seconds: expected a number from 0.01 to 86400, found Infinity"),
        ("access_log=banana", "--set access_log: expected true or false, found 'banana'"),
        ("host=", "--set host: expected a text that is not empty, found nothing"),
        ("tokens_file=", "--set tokens_file: expected a text that is not empty, found nothing"),
        ("cors_origins=", r"--set cors_origins: expected a list of texts ([] for none), found nothing"),
        ("cors_origins=[1]", r"--set cors_origins: expected a list of texts ([] for none), found [1]"),
        ("columns=url", "--set columns: expected a list of columns for each index, like "),
        ("prot=1", "--set: there is no setting 'prot'; did you mean port?"),
        ("port", "--set: expected NAME=VALUE, like --set threads=8, found no ="),
        ("indexes=[]", "--set indexes: expected a list of one text or more, found nothing"),
    ],
)
def test_a_wrong_value_is_one_line_with_its_place_what_is_expected_and_what_was_found(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)) as raised:
        load_settings({"indexes": ["x"]} if "indexes" not in text else {}, [text], None, {})
    assert "\n" not in str(raised.value)
    assert "nput should" not in str(raised.value)


def test_a_wrong_flag_and_a_wrong_variable_are_named_as_they_were_written() -> None:
    with pytest.raises(UsageError, match=r"^--tls-key: expected a text"):
        load_settings({"indexes": ["x"], "tls_key": ""}, (), None, {})
    with pytest.raises(UsageError, match=r"^GNOMON_WORKERS: expected a whole number from 1 to 256, found 'two'$"):
        load_settings({"indexes": ["x"]}, (), None, {"GNOMON_WORKERS": "two"})
    with pytest.raises(UsageError, match=r"^--set port: is given twice$"):
        load_settings({"indexes": ["x"]}, ["port=1", "port=2"], None, {})


def test_no_index_at_all_says_where_to_name_one() -> None:
    with pytest.raises(UsageError, match=r"no index is given: .*command line.*GNOMON_INDEXES.*--config"):
        load_settings({}, (), None, {})


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("GNOMON_TOKEN_FILE", "did you mean GNOMON_TOKENS_FILE?"),
        ("GNOMON_INDEX", "did you mean GNOMON_INDEXES?"),
        ("gnomon_port", "did you mean GNOMON_PORT?"),
        ("GNOMON_QQQQQ", "there are GNOMON_INDEXES, GNOMON_COLUMNS, "),
    ],
)
def test_a_misspelt_variable_is_an_error_that_names_the_nearest(variable: str, near: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{variable}: no setting has this variable; {near}")):
        load_settings({"indexes": ["x"]}, (), None, {variable: "1"})


def test_variables_of_other_programs_and_of_kubernetes_are_left_alone() -> None:
    others = {
        "GNOMON_LOG": "INFO",
        "GNOMON_WEBHDFS": "http://namenode:9870",
        "GNOMON_TEST_STORES": "all",
        "GNOMON_SERVICE_HOST": "10.0.0.1",
        "GNOMON_SERVICE_PORT_HTTP": "8000",
        "GNOMON_PORT": "tcp://10.0.0.1:8000",
        "GNOMON_PORT_8000_TCP_ADDR": "10.0.0.1",
        "GNOMON_PAGES_PORT": "tcp://[fd00::1]:8000",
        "GNOMON_PAGES_SERVICE_HOST": "10.0.0.2",
    }
    assert load_settings({"indexes": ["x"]}, (), None, others).port == 8000


@pytest.mark.parametrize("given", [{"GNOMON_TOKENS": f'["{SECRET}", 5]'}, {"GNOMON_TOKENS": f'[["{SECRET}"]]'}])
def test_a_token_is_never_shown(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"GNOMON_TOKENS: expected a list of texts .*\(not shown\)") as raised:
        load_settings({"indexes": ["x"]}, (), None, given)
    assert "5e884898" not in str(raised.value)
    assert "5e884898" not in repr(Settings(indexes=["x"], tokens=[SECRET]))


def test_an_unknown_flag_is_an_error() -> None:
    with pytest.raises(UsageError, match="there is no setting prot; did you mean port"):
        load_settings({"indexes": ["x"], "prot": 1}, (), None, {})


def test_settings_know_where_each_was_given_also_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text('threads = 2\n[indexes.a]\npath = "/a"\ncolumns = ["x"]\n')
    loaded = load_settings({"host": "here"}, ["max_rows=5"], str(file), {"GNOMON_PORT": "1"})
    settings = pickle.loads(pickle.dumps(loaded))
    assert settings == loaded
    found = [settings.where(name) for name in ("host", "max_rows", "port", "threads", "workers")]
    assert found == ["--host", "--set max_rows", "GNOMON_PORT", f"{file}, line 1: threads", "setting workers"]
    assert settings.where("columns", "a") == f"{file}, line 4: indexes.a.columns"


def test_variables_that_other_parts_of_gnomon_read_are_accepted() -> None:
    found = set()
    for folder in ("base", "btree", "sources", "shadow", "jobs", "indexer"):
        for path in (PAGE.parents[2] / "gnomon" / folder).rglob("*.py"):
            found |= set(re.findall(r"\bGNOMON_[A-Z_]*[A-Z]\b", path.read_text()))
    assert {"GNOMON_KERNEL", "GNOMON_WEBHDFS", "GNOMON_WEBHDFS_TOKEN"} <= found
    assert load_settings({"indexes": ["x"]}, (), None, dict.fromkeys(found, "1")).indexes == ("x",)
