"""The settings of the service: one table. The environment is read here only; a test holds `docs/settings.md` to it."""

import json
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shadow import UsageError

PREFIX = "GNOMON_"
MIB = 1024 * 1024


def _setting(default: Any, unit: str, help: str, **bounds: Any) -> Any:
    return Field(default, description=help, json_schema_extra={"unit": unit}, **bounds)


Texts = Annotated[tuple[str, ...], NoDecode]


class Settings(BaseSettings):
    """Each setting is an argument here, and a variable `GNOMON_<NAME>` in the environment; an argument wins."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", allow_inf_nan=False)

    indexes: Texts = Field(
        min_length=1,
        description="The indexes that are served, each a path or URL, or `NAME=` and one; the first is the default.",
        json_schema_extra={"unit": "list"},
    )
    columns: dict[str, tuple[str, ...]] = _setting(
        {}, "index to list", "The only columns an index shows, by its name; all where it is not named."
    )
    hidden_columns: dict[str, tuple[str, ...]] = _setting(
        {}, "index to list", "The columns an index does not show, by its name."
    )
    host: str = _setting("127.0.0.1", "address", "The address to listen on; 0.0.0.0 lets other machines ask.")
    port: int = _setting(8000, "port", "The port to listen on; 0 takes a free one.", ge=0, le=65535)
    workers: int = _setting(1, "processes", "How many processes answer, each with caches of its own.", ge=1, le=256)
    threads: int = _setting(16, "threads", "How many requests of a worker read files at the same time.", ge=1, le=1024)
    max_waiting: int = _setting(
        256, "requests", "How many requests of a worker may wait for a thread before more are answered 503.", ge=0
    )
    timeout_seconds: float = _setting(
        30.0, "seconds", "How long a request may take, waiting included, before it is answered 503.", gt=0, le=86400
    )
    cache_bytes: int = _setting(
        256 * MIB,
        "bytes",
        "Memory of a worker for index nodes, key filters and file metadata; a quarter is kept for old snapshots.",
        ge=0,
    )
    pinned_snapshots: int = _setting(4, "snapshots", "How many old snapshots stay open for `snapshot=`.", ge=1)
    refresh_seconds: float = _setting(5.0, "seconds", "How often a newer snapshot is looked for.", gt=0, le=86400)
    coverage_seconds: float = _setting(
        60.0, "seconds", "How old the coverage in `/readyz` may be before the source is listed again.", ge=0
    )
    max_key_bytes: int = _setting(16 * 1024, "bytes", "The longest value of a key column that is taken.", ge=1)
    max_batch_keys: int = _setting(10_000, "keys", "The most keys one `POST /rows` may ask for.", ge=1)
    max_body_bytes: int = _setting(16 * MIB, "bytes", "The largest request body that is taken.", ge=1)
    max_rows: int = _setting(10_000, "rows", "The most rows of one answer; more are answered 413.", ge=1)
    max_answer_bytes: int = _setting(64 * MIB, "bytes", "The largest answer; a larger one is answered 413.", ge=1024)
    tokens_file: str | None = _setting(
        None, "path", "A file of hashed bearer tokens that may ask, as `gnomon token` prints them; none lets all ask."
    )
    tokens: Texts = _setting((), "list", "Hashed bearer tokens that may ask, beside those of the file.")
    requests_per_second: float = _setting(
        0.0, "requests/s", "How many requests a client may make in the long run; 0 does not count them.", ge=0
    )
    request_burst: int = _setting(50, "requests", "How many requests a client may make at once before that.", ge=1)
    cors_origins: Texts = _setting((), "list", "Origins whose pages may read answers in a browser; none by default.")
    public_docs: bool = _setting(True, "flag", "Whether `/openapi.json` is shown without a token.")
    tls_certificate: str | None = _setting(None, "path", "A PEM file with the certificate chain; none serves HTTP.")
    tls_key: str | None = _setting(None, "path", "A PEM file with the key of the certificate.")
    access_log: bool = _setting(True, "flag", "Whether each request is logged as a line of JSON.")
    shutdown_seconds: int = _setting(30, "seconds", "How long running requests may take to end after a signal.", ge=0)

    @field_validator("indexes", "tokens", "cors_origins", mode="before")
    @classmethod
    def _as_list(cls, given: Any) -> Any:
        """One text is a list with commas between, or one in JSON."""
        if not isinstance(given, str):
            return given
        if given.startswith("["):
            return json.loads(given)
        return [text.strip() for text in given.split(",") if text.strip()]


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
        default = "required" if field.is_required() else f"`{_shown(field.default)}`"
        lines.append(f"| `{name}` | `{PREFIX}{name.upper()}` | {unit} | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


def _shown(default: Any) -> str:
    if default is None or default in ((), {}):
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)
