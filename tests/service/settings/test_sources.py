"""service/settings/sources.py: the TOML file, its tables of indexes, and the places of its errors."""

import re
from pathlib import Path

import pytest

from gnomon.service.indexes.places import places
from gnomon.service.settings.table import Settings, load_settings
from gnomon.shadow import UsageError

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


def load(folder: Path, text: str) -> Settings:
    file = folder / "gnomon.toml"
    file.write_text(text)
    return load_settings({}, (), str(file), {})


def test_the_example_of_the_docs_is_loaded(tmp_path: Path) -> None:
    [example] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    settings = load(tmp_path, example)
    first, second = places(settings)
    assert (first.name, first.path, first.hidden) == ("pages", "s3://lake/pages_index", ("html",))
    assert (second.name, second.path, second.columns) == ("orders", "/data/orders_index", ("country", "id", "total"))
    assert (settings.host, settings.workers, settings.timeout_seconds) == ("0.0.0.0", 4, 10.0)


def test_indexes_of_a_file_may_be_a_list_and_a_flag_replaces_them(tmp_path: Path) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text('[indexes.a]\npath = "/a"\nhidden_columns = ["b"]\n')
    assert load(tmp_path, 'indexes = ["/a", "b=/c"]').indexes == ("/a", "b=/c")
    file.write_text('[indexes.a]\npath = "/a"\nhidden_columns = ["b"]\n')
    [only] = places(load_settings({"indexes": ["/elsewhere/a"]}, (), str(file), {}))
    assert (only.path, only.hidden) == ("/elsewhere/a", ("b",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("port = 1\nprot = 2\n", ", line 2: prot: there is no such setting; did you mean port?"),
        ('# port\nport = "80"\n', ", line 2: port: expected a whole number from 0 to 65535, found '80'"),
        ("port = true\n", ", line 1: port: expected a whole number from 0 to 65535, found true"),
        ("timeout_seconds = inf\n", ", line 1: timeout_seconds: expected a number above 0, at most 86400, found Inf"),
        ("host = 2026-01-01\n", ", line 1: host: expected a text that is not empty, found "),
        ("indexes = 5\n", ", line 1: indexes: expected a list of one text or more, found 5"),
        ("[indexes]\na = 5\n", ", line 2: indexes.a: expected a path or URL, or a table with a path"),
        ('[indexes.a]\npth = "/a"\n', ", line 2: indexes.a.pth: there is no such key; did you mean path?"),
        ("[indexes.a]\npath = 5\n", ", line 2: indexes.a.path: expected a path or URL, found 5"),
        ('[indexes.a]\ncolumns = ["x"]\n', ", line 1: indexes.a: expected a path or URL as its path, found none"),
        ('[indexes.a]\npath = "/a"\ncolumns = "x"\n', ", line 3: indexes.a.columns: expected a list of column names"),
        ('columns = {a = ["x"]}\n[indexes.a]\npath = "/a"\ncolumns = ["y"]\n', ", line 4: indexes.a.columns: is given"),
        ('tokens = "sha256:abc"\n', ", line 1: tokens: expected a list of texts ([] for none), found something else"),
    ],
)
def test_an_error_names_the_file_the_line_and_the_key(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text(text if "indexes" in text else f'{text}indexes = ["x"]\n')
    with pytest.raises(UsageError, match=re.escape(f"{file}{says}")) as raised:
        load_settings({}, (), str(file), {})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("port = \n", "line 1, column 8: expected a value: a number, true, false, a text "),
        ("workers = 2\nport 80\n", "line 2, column 6: expected a setting like port = 8000: its name, =, its value"),
        ("host = nowhere", "line 1, column 8: expected a value: a number, true, false, a text "),
        ("port = 8000 http", "line 1, column 13: expected the end of the line behind one value; "),
        ('host = "x\nport = 1', "line 1, column 10: expected the quote that ends the text on its own line"),
        ('workers = 1\nhost = "x', "line 2, column 10: expected the \" or ' that ends the text"),
        (r'tls_key = "C:\keys"', r"line 1, column 16: expected \\ for a backslash in a text"),
        ('indexes = ["a" "b"]', "line 1, column 16: expected the ] that ends the list, and commas "),
        ('columns = {a = ["x"]', "line 1, column 21: expected the } that ends the table"),
        ("[indexes.a\n", "line 1, column 11: expected the ] that ends the name of the table"),
        ("[indexes.a]\n[indexes.a]\n", "line 2, column 11: expected each table once, "),
        ("port = 1\nport = 2\n", "line 2, column 9: expected each setting once "),
        ("*", "line 1, column 1: expected a setting like port = 8000, a table like [indexes.pages], or a comment "),
        ("tokens = [" + "[" * 5000, "found lists or tables too deep inside each other"),
    ],
)
def test_what_is_no_toml_is_told_by_line_and_column_and_what_is_expected(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        load(tmp_path, text)
    told = str(raised.value)
    assert told.startswith(f"--config: {tmp_path}/gnomon.toml")
    assert says in told
    assert "\n" not in told


def test_a_line_that_is_no_toml_is_not_shown_for_it_may_hold_a_token(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        load(tmp_path, 'tokens = ["ann sha256:5e884898" "bob"]')
    assert "5e884898" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_named_with_who_asked_for_it(tmp_path: Path) -> None:
    missing = str(tmp_path / "no.toml")
    with pytest.raises(UsageError, match=rf"^GNOMON_CONFIG: {missing}: No such file"):
        load_settings({}, (), None, {"GNOMON_CONFIG": missing})
    with pytest.raises(UsageError, match=rf"^--config: {tmp_path}: Is a directory"):
        load_settings({}, (), str(tmp_path), {})
    (tmp_path / "b.toml").write_bytes(b"host = '\xff'")
    with pytest.raises(UsageError, match="UTF-8"):
        load_settings({}, (), str(tmp_path / "b.toml"), {})
