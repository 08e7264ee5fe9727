"""service/settings.py: one table, which the docs show and the environment fills."""

from pathlib import Path

import pytest

from service.settings import PREFIX, Settings, load_settings, settings_table
from shadow import UsageError

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_docs_page_shows_the_table() -> None:
    assert settings_table() in PAGE.read_text()


def test_each_setting_has_a_unit_and_one_sentence() -> None:
    for name, field in Settings.model_fields.items():
        assert isinstance(field.json_schema_extra, dict), name
        assert field.json_schema_extra["unit"], name
        assert field.description is not None
        assert field.description.endswith("."), name
        assert ". " not in field.description, name


def test_the_environment_fills_settings_and_an_argument_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "INDEXES", "/shadow, b=/two")
    monkeypatch.setenv(PREFIX + "PORT", "81")
    monkeypatch.setenv(PREFIX + "THREADS", "3")
    settings = load_settings(port=82)
    assert (settings.indexes, settings.port, settings.threads) == (("/shadow", "b=/two"), 82, 3)


def test_only_this_machine_is_listened_to_unless_told() -> None:
    assert Settings(indexes=["x"]).host == "127.0.0.1"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, r"setting indexes \(GNOMON_INDEXES\): Field required"),
        ({"indexes": ""}, r"setting indexes \(GNOMON_INDEXES\): .*at least 1 item.*found \[\]"),
        ({"indexes": ["x"], "port": "http"}, r"setting port \(GNOMON_PORT\): .*valid integer.*, found 'http'"),
        ({"indexes": ["x"], "port": 70000}, r"less than or equal to 65535, found 70000"),
        ({"indexes": ["x"], "refresh_seconds": 0}, r"refresh_seconds .*greater than 0, found 0"),
        ({"indexes": ["x"], "prot": 1}, r"setting prot .*; the settings are indexes, columns"),
    ],
)
def test_a_wrong_setting_is_named_with_what_was_found_and_expected(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, object], says: str
) -> None:
    monkeypatch.delenv(PREFIX + "INDEXES", raising=False)
    with pytest.raises(UsageError, match=says):
        load_settings(**given)
