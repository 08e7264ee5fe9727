"""The settings of the service: one table. The environment is read here only; a test holds `docs/settings.md` to it."""

from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shadow import UsageError

PREFIX = "GNOMON_"
MIB = 1024 * 1024


def _setting(default: Any, unit: str, help: str, **bounds: Any) -> Any:
    return Field(default, description=help, json_schema_extra={"unit": unit}, **bounds)


class Settings(BaseSettings):
    """Each setting is an argument here, and a variable `GNOMON_<NAME>` in the environment; an argument wins."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    index: str = Field(min_length=1, description="The index that is served.", json_schema_extra={"unit": "path or URL"})
    host: str = _setting("127.0.0.1", "address", "The address to listen on; 0.0.0.0 lets other machines ask.")
    port: int = _setting(8000, "port", "The port to listen on; 0 takes a free one.", ge=0, le=65535)
    threads: int = _setting(16, "threads", "How many requests read files at the same time.", ge=1)
    cache_bytes: int = _setting(
        256 * MIB,
        "bytes",
        "Memory for index nodes, key filters and file metadata; a quarter is kept for old snapshots.",
        ge=0,
    )
    pinned_snapshots: int = _setting(4, "snapshots", "How many old snapshots stay open for `snapshot=`.", ge=1)
    refresh_seconds: float = _setting(5.0, "seconds", "How often a newer snapshot is looked for.", gt=0)
    coverage_seconds: float = _setting(
        60.0, "seconds", "How old the coverage in `/readyz` may be before the source is listed again.", ge=0
    )
    max_key_bytes: int = _setting(16 * 1024, "bytes", "The longest value of a key column that is taken.", ge=1)
    max_batch_keys: int = _setting(10_000, "keys", "The most keys one `POST /rows` may ask for.", ge=1)
    max_body_bytes: int = _setting(16 * MIB, "bytes", "The largest request body that is taken.", ge=1)
    shutdown_seconds: int = _setting(30, "seconds", "How long running requests may take to end after a signal.", ge=0)


def load_settings(**given: Any) -> Settings:
    """Settings from arguments and environment. UsageError names the setting, what was found and what is expected."""
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        found = "" if first["type"] == "missing" else f", found {first['input']!r}"
        known = ", ".join(Settings.model_fields)
        hint = f"; the settings are {known}" if name not in Settings.model_fields else ""
        raise UsageError(f"setting {name} ({PREFIX}{name.upper()}): {first['msg']}{found}{hint}") from None


def settings_table() -> str:
    """The settings as the Markdown table of `docs/settings.md`."""
    lines = ["| setting | variable | unit | default | what it does |", "|---|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        extra = field.json_schema_extra
        unit = extra["unit"] if isinstance(extra, dict) else ""
        default = "required" if field.is_required() else f"`{field.default}`"
        lines.append(f"| `{name}` | `{PREFIX}{name.upper()}` | {unit} | {default} | {field.description} |")
    return "\n".join(lines) + "\n"
