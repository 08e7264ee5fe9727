"""The settings of the service: one table. A test compares `docs/reference/settings.md` with it."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta

from gnomon.service.settings.sources import (
    CONFIG,
    DEFAULT_PREFIX,
    Given,
    Setting,
    checked,
    of_environment,
    of_file,
    of_flags,
    of_pairs,
    shown,
)
from gnomon.shadow import UsageError

MIB = 1024 * 1024

logger = logging.getLogger("gnomon.service")

Text = Annotated[str, Meta(min_length=1)]
Texts = tuple[Text, ...]  # a list is taken, too


def _setting(
    default: Any, unit: str, help: str, secret: bool = False, expected: str | None = None, **bounds: Any
) -> Any:
    told = {"told": (unit, help, secret, expected, bounds)}
    return field(default_factory=dict, metadata=told) if default == {} else field(default=default, metadata=told)


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """The settings by name. `load_settings` reads them from where users write them. UsageError for a wrong value.

    `places` says where each was given, by setting, and by setting and index. `overridden` has a line for each setting
    of the file that a variable replaces by another value: both places, both values."""

    indexes: Texts = _setting(
        MISSING,
        "list",
        "The indexes that are served, each a path or URL, or `NAME=` and one; the first is the default.",
        min_length=1,
    )
    columns: dict[Text, Texts] = _setting(
        {}, "index to list", "The only columns an index shows, by its name; all where it is not named."
    )
    hidden_columns: dict[Text, Texts] = _setting(
        {}, "index to list", "The columns an index does not show, by its name."
    )
    host: Text = _setting("127.0.0.1", "address", "The address to listen on; 0.0.0.0 lets other machines ask.")
    port: int = _setting(8000, "port", "The port to listen on; 0 takes a free one.", ge=0, le=65535)
    root_path: str = _setting(
        "",
        "path",
        "The path under which a proxy serves the service, like `/gnomon`, whether the proxy removes it or not.",
        expected="a path like /gnomon, with no slash at its end",
        pattern=r"^((/[A-Za-z0-9_.~-]+)+)?\Z",
    )
    workers: int = _setting(1, "processes", "How many processes answer, each with caches of its own.", ge=1, le=256)
    hang_seconds: float = _setting(
        30.0,
        "seconds",
        "How long the event loop of a worker may stand still before the worker is killed and replaced; 0 never.",
        ge=0,
        le=86400,
    )
    threads: int = _setting(
        16, "threads", "How many requests of a worker read one index at the same time.", ge=1, le=1024
    )
    batch_threads: int = _setting(
        2, "threads", "How many batches of a worker read one index at the same time, besides single keys.", ge=1, le=64
    )
    max_waiting: int = _setting(
        256,
        "requests",
        "How many requests for one index may wait for a thread of a worker; more are answered 503.",
        ge=0,
    )
    max_connections: int = _setting(
        1000,
        "connections",
        "How many connections a worker holds; idle ones make room for more, and without one, requests get 503.",
        ge=1,
    )
    read_seconds: float = _setting(
        30.0, "seconds", "How long a client may take to send a request before it is answered 408.", gt=0, le=86400
    )
    idle_seconds: int = _setting(75, "seconds", "How long a connection stays open without a request.", ge=1, le=86400)
    timeout_seconds: float = _setting(
        30.0, "seconds", "How long a request may take, waiting included, before it is answered 503.", gt=0, le=86400
    )
    cache_bytes: int = _setting(
        256 * MIB,
        "bytes",
        "Memory of a worker for index nodes, Bloom filters, file metadata, pages; a quarter is kept for old snapshots.",
        ge=0,
    )
    cache_folder: Text | None = _setting(
        None,
        "path",
        "A folder on a local disk that keeps parts of remote files that never change; none reads them again.",
    )
    cache_folder_bytes: int = _setting(
        1024 * MIB, "bytes", "The most bytes of the cache folder, of all workers and programs that share it.", ge=0
    )
    memory_bytes: int = _setting(
        256 * MIB,
        "bytes",
        "Memory of a worker for bodies, rows being read, and answers being made or sent; one client gets half of it.",
        ge=16 * MIB,
    )
    pinned_snapshots: int = _setting(4, "snapshots", "How many old snapshots stay open for `_snapshot=`.", ge=1)
    refresh_seconds: float = _setting(5.0, "seconds", "How often a newer snapshot is looked for.", ge=0.01, le=86400)
    coverage_seconds: float = _setting(
        60.0, "seconds", "How often the source is listed, for the coverage in `/readyz`.", ge=0.01, le=86400
    )
    freshness: Literal["index", "newest"] = _setting(
        "index",
        "`index`, `newest`",
        "Answer as of the version of a lake table that the index covers, or as of the table's newest one.",
    )
    freshness_files: int = _setting(
        1000, "files", "With `newest`: the most files that are read without an index; beyond them 503.", ge=1
    )
    freshness_rows: int = _setting(1_000_000, "rows", "With `newest`: the most rows of these files.", ge=1)
    max_key_bytes: int = _setting(16 * 1024, "bytes", "The longest value of a key column that is taken.", ge=1)
    max_batch_keys: int = _setting(10_000, "keys", "The most keys one `POST /rows` may ask for.", ge=1)
    max_body_bytes: int = _setting(16 * MIB, "bytes", "The largest request body that is taken.", ge=1)
    max_rows: int = _setting(
        10_000, "rows", "The most rows of one answer; more are answered 413, and a range in pages.", ge=1
    )
    max_answer_bytes: int = _setting(
        32 * MIB,
        "bytes",
        "The largest answer; a larger one is answered 413.",
        ge=1024,
    )
    tokens_file: Text | None = _setting(
        None, "path", "A file of hashed bearer tokens that may ask, as `gnomon token` prints them; none lets all ask."
    )
    tokens: Texts = _setting((), "list", "Hashed bearer tokens that may ask, beside those of the file.", secret=True)
    requests_per_second: float = _setting(
        0.0, "requests/s", "How many requests a client may make in the long run; 0 does not count them.", ge=0
    )
    request_burst: int = _setting(50, "requests", "How many requests a client may make at once before that.", ge=1)
    trusted_proxies: Texts = _setting(
        (), "list", "Addresses or networks of proxies whose X-Forwarded-For says who asks; none by default."
    )
    cors_origins: Texts = _setting((), "list", "Origins whose pages may read answers in a browser; none by default.")
    public_docs: bool = _setting(True, "flag", "Whether `/openapi.json` is shown without a token.")
    tls_certificate: Text | None = _setting(None, "path", "A PEM file with the certificate chain; none serves HTTP.")
    tls_key: Text | None = _setting(None, "path", "A PEM file with the key of the certificate.")
    upstream: Text | None = _setting(
        None,
        "URL",
        "Of `gnomon catalog`: the Iceberg REST catalog to which requests are passed on.",
        expected="the address of a REST catalog, like http://rest-catalog:8181",
        pattern="^https?://.",
    )
    catalog: Text | None = _setting(
        None,
        "name",
        "Of `gnomon catalog`: the catalog of pyiceberg's configuration that it serves, in place of `upstream`.",
    )
    master: Text | None = _setting(
        None,
        "URL",
        "Of commands that run on Spark: the master of the session, unless `--master` names one.",
    )
    mcp: bool = _setting(
        False, "flag", "Whether agents are answered at `/mcp` (MCP over HTTP; it needs the extra `mcp`)."
    )
    access_log: bool = _setting(True, "flag", "Whether each request is logged as a line of JSON.")
    log_keys: bool = _setting(
        False, "flag", "Whether the access log shows keys; else the route stands for the path, and `-` for key values."
    )
    shutdown_seconds: int = _setting(30, "seconds", "How long running requests may take to end after a signal.", ge=0)
    places: Mapping[str, str] = field(default_factory=dict)
    overridden: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, setting in FIELDS.items():
            object.__setattr__(self, name, checked(Given(getattr(self, name), self.where(name)), setting))

    def __repr__(self) -> str:
        shown = (name for name, setting in FIELDS.items() if not setting.secret)
        return f"Settings({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def is_catalog(self) -> bool:
        """Whether these are settings of `gnomon catalog`."""
        return self.upstream is not None or self.catalog is not None

    def where(self, name: str, index: str = "") -> str:
        """Where a setting was given, for errors: its flag, its variable, or its file with line and key. With `index`,
        the place of the value for this index."""
        return self.places.get(f"{name}.{index}") or self.places.get(name, f"setting {name}")

    def is_given(self, name: str) -> bool:
        """Whether a setting was given anywhere; else it has its default."""
        return name in self.places

    def log_overridden(self) -> None:
        """Log the lines of `overridden` as warnings."""
        for line in self.overridden:
            logger.warning("%s", line)


_KINDS = get_type_hints(Settings, include_extras=True)
FIELDS = {one.name: Setting(_KINDS[one.name], one) for one in fields(Settings) if one.metadata}


def load_settings(
    flags: Mapping[str, Any] | None = None,
    pairs: Sequence[str] = (),
    config: Text | None = None,
    environment: Mapping[str, str] | None = None,
    found: Text | None = None,
    needs_index: bool = True,
) -> Settings:
    """Settings from flags, from `NAME=VALUE` pairs, from the environment (of this process where none is handed in),
    from a TOML file, and from the defaults of an image (GNOMON_DEFAULT_*); each source overrides the ones after it.
    `found` is a file that is read if no other is named; its relative paths are below its folder. `needs_index=False` is
    for commands that take an index of their own: they need no `indexes`.

    UsageError names the flag, the variable, or the file with its key, what was found and what is expected."""
    variables = os.environ if environment is None else environment
    path, where = (config, "--config") if config is not None else (variables.get(CONFIG), CONFIG)
    if path is None:
        path, where = found, ""
    file: dict[str, Given] = of_file(path, FIELDS, where) if path is not None else {}
    by_variable = of_environment(variables, FIELDS)
    stronger = of_pairs(pairs, FIELDS) | of_flags(flags or {}, FIELDS)
    given = of_environment(variables, FIELDS, DEFAULT_PREFIX) | file | by_variable | stronger
    if "indexes" not in given and needs_index:
        raise UsageError(
            "no index is given: name one on the command line, like /data/index, in GNOMON_INDEXES, or in the "
            "file of --config"
        )
    places = {name: one.where for name, one in given.items()}
    places |= {f"{name}.{index}": at for name, one in given.items() for index, at in one.by_index.items()}
    values = {name: one.value for name, one in given.items()}
    settings = Settings(**(values if needs_index else {"indexes": ["."], **values}), places=places)
    both = [name for name in FIELDS if name in file and name in by_variable and name not in stronger]
    lines = [line for name in both for line in _overridden(settings, name, by_variable[name], file[name])]
    return replace(settings, overridden=tuple(lines))


def _overridden(settings: Settings, name: str, variable: Given, file: Given) -> Iterator[str]:
    """The line that says that a variable replaces a setting of the file; none where both say the same."""
    with suppress(UsageError):  # the table makes 5.0 of 5, and a tuple of a list
        if checked(file, FIELDS[name]) == getattr(settings, name):
            return
    if FIELDS[name].secret:
        yield f"{variable.where} replaces {file.where} (the values are not shown)"
    else:
        yield f"{variable.where}={shown(variable.value, False)} replaces {file.where} = {shown(file.value, False)}"
