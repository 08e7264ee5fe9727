"""The base of all errors: an error has fields, and composes its text from them. `Action` is the table of advice that
errors give. A test checks the command in each text against the CLI.

Pickle, `copy` and JSON keep an error's type, text, fields and the attributes of its class. So a process pool, Spark or
a log can pass it on."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, Self

MOST_SHOWN = 80  # characters of a found value
_LINE_ENDS = re.compile(r"\s*[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]\s*")  # as `str.splitlines` finds them
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# pyarrow has classes for memory errors. The libraries it calls report them as text.
NO_MEMORY = re.compile(
    r"malloc of size|not enough memory|out of memory|bad_alloc|cannot allocate memory", re.IGNORECASE
)


class Action(Enum):
    """One piece of advice. The value ends an error's message."""

    # A damaged or missing file of an index.
    BUILD_FULL = "restore it or run gnomon build INDEX --full"
    BUILD_FULL_OR_NO_FILTERS = "run gnomon build INDEX --full, or open the index with filters=False"
    BUILD_PAGE_MAPS = "run gnomon build INDEX --page-maps, or open the index with page_maps=False"
    BUILD_SPEC = "run gnomon build INDEX, which writes it again"
    WRITE_VALUES = "restore it or write the folder again with write_btree"
    RESTORE = "restore the file"
    RESTORE_OR_REPAIR = "restore the file, or remove it from the table's metadata by the table's own engine"
    RUN_AGAIN_OR_REPAIR = "run it again; if it stays so, repair the table by its own engine"
    RESTORE_RECORD = "restore the file from a backup: only it says which rows were appended"
    RESTORE_APPEND = "restore either file, or remove the append's record from the index and run gnomon dedup again"

    # The source file is not the indexed one, or the index does not match its source.
    BUILD_FOR_NEW_FILES = "run gnomon build INDEX, which covers new files"
    BUILD_AGAIN = "run gnomon build INDEX again"
    BUILD_OR_TOUCH = "run gnomon build INDEX again; if it finds nothing to do, touch the file first"
    TOUCH = "its size and time are the same, so touch it and run gnomon build INDEX again"
    FRESH_POINTERS = "compute the pointers again from the current files"
    ASK_NEWEST = "query the newest snapshot, and run gnomon build INDEX first where this one is the newest"
    WRITE_SOURCE = "write the file again, or restore it"
    UNPACK = "unpack the file, or give the option whole_file=true"
    NAME_FORMAT = "name the format, as in gnomon build SOURCE INDEX --format csv"
    DECLARE_TYPE = "declare the type that the files have, or write the file again"

    # A run did not finish.
    RUN_AGAIN = "run it again"
    APPEND_BATCH_AGAIN = "run the command with that batch again"
    FINISH_APPEND = (
        "run gnomon dedup with that batch on that source, or remove the append's record from the index and append the "
        "batch again"
    )
    BUILD_FIRST = "run gnomon build SOURCE INDEX --key KEY"
    RUN_WHOLE = "run it again when the file is whole"
    NAME_SOURCE = "run gnomon build SOURCE INDEX --key KEY, or gnomon dedup with --source and --key"
    ACCEPT_VANISHED = (
        "mount the disk or list the source again; if the files were deleted on purpose, run gnomon build INDEX "
        "--accept-vanished"
    )
    ACCEPT_OLDER_TABLE = (
        "if the table was put back to an older version on purpose, run gnomon build INDEX --full --accept-vanished"
    )
    ACCEPT_VANISHED_IN_DEDUP = (
        "mount the disk or restore the files; if they were deleted on purpose, run gnomon build INDEX, or gnomon dedup "
        "with --accept-vanished"
    )
    EMPTY_INDEX = "mount the disk; to empty the index, run gnomon build INDEX --full --accept-vanished"
    BUILD_FULL_OR_ELSEWHERE = "run gnomon build INDEX --full, or build to another folder"
    BUILD_ELSEWHERE = "build to another folder"
    DEDUP_NULL_KEYS = "append the batch under another name, or run gnomon dedup with --null-keys dedup"
    UPGRADE = "upgrade gnomon"
    UPGRADE_OR_DROP = "upgrade gnomon, or drop the feature from the table by its own engine"
    UPGRADE_OR_KEEP_FORMAT = "upgrade gnomon, or write the table in an older format version"
    MAKE_TOKEN = "gnomon token NAME prints such a line"

    # The disk or the store.
    FREE_SPACE = "free space there"
    FREE_SPACE_OR_RAISE_QUOTA = "free space there, or raise the quota"
    USE_WRITABLE_DISK = "use a file system that can be written to"
    USE_WRITABLE_FOLDER = "use a folder that this user may write to"
    USE_HARD_LINKS = "use a folder that this user may write to, on a file system with hard links"
    USE_FOLDERS = "use a path in which no folder is a file or a broken link"
    MEND_LINKS = "mend the links of this path"
    LET_READ = "let this user read it"
    RAISE_OPEN_FILES = "raise the limit of open files (ulimit -n)"
    USE_SHORTER_NAME = "use a shorter name"
    RUN_AGAIN_LATER = "run it again when the other runs have finished"
    CHECK_DISK = "check the disk"
    SET_S3_KEYS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    SET_GOOGLE_ACCOUNT = "set GOOGLE_SERVICE_ACCOUNT or GOOGLE_APPLICATION_CREDENTIALS"
    SET_AZURE_KEYS = "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
    SET_HF_TOKEN = "check the name of the data set, or set HF_TOKEN to a token that may read it"
    COPY_FILE = "copy the file to a disk or an object store, and index the copy"
    NAME_ONE_FILE = "name one file by its URL as a source, and a disk or an object store for what is written"
    FETCH_HADOOP_TOKEN = "run kinit and hdfs fetchdt, and set HADOOP_TOKEN_FILE_LOCATION to the file that it writes"
    SET_HADOOP_USER = "set HADOOP_USER_NAME to a user with this permission"
    CHECK_GRANTS = "check what the catalog grants on this table"
    VEND = "let the catalog vend credentials for the table instead (vended-credentials)"
    SET_CLOCK = "set the clock of this machine"
    MAKE_BUCKET = "make the bucket, or correct its name"
    RUN_AGAIN_ANSWERING = "run it again when the store answers"
    TRUST_CERTIFICATE = "set SSL_CERT_FILE to a PEM file of the authority that signed it"
    CHECK_CATALOG_SETTINGS = "check the settings of the catalog, PYICEBERG_CATALOG__NAME__URI and others"
    CHECK_CATALOG_ACCESS = "check the credentials of the catalog, as PYICEBERG_CATALOG__NAME__TOKEN"
    CHECK_CATALOG_RUNS = "check that the catalog runs at this address, and run it again"
    CHECK_SESSION_CATALOG = "check the settings of the session's catalog, and run it again"
    NAME_TABLE = "name a table that the catalog lists"
    CHECK_STORE_SETTINGS = "check the settings of the store"
    MORE_BUCKETS = "run gnomon rebucket INDEX --buckets N with more buckets"

    def __str__(self) -> str:
        return self.value


def shown(value: object) -> str:
    """A value as messages show it: on one line of at most 80 characters. A text is shown unquoted, another value as its
    `repr`."""
    text = value if isinstance(value, str) else repr(value)
    text = _LINE_ENDS.sub(" ", text)
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


class GnomonError(Exception):
    """Base of all errors of this product.

    `what` says what is wrong. `path` names the file or folder, `offset` the byte in it, `column` the column. `expected`
    and `found` are texts, `action` is the advice. All but `what` may be None. `str` composes them to

        {path} at byte {offset}: column {column}: {what}: expected {expected}, found {found}; {action}

    and omits each field that is None."""

    COLUMN_LABEL: ClassVar[str] = "column"

    def __init__(
        self,
        what: str,
        path: str | None = None,
        offset: int | None = None,
        *,
        column: str | None = None,
        expected: object = None,
        found: object = None,
        action: Action | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.path = path
        self.offset = None if offset is None else int(offset)
        self.column = column
        self.expected = None if expected is None else str(expected)
        self.found = None if found is None else shown(found)
        self.action = action

    def __str__(self) -> str:
        return composed(self.place, self.fault, self.advice)

    @property
    def place(self) -> str:
        """Path and byte offset, or an empty text."""
        if self.offset is None:
            return self.path or ""
        return f"{self.path} at byte {self.offset}" if self.path else f"byte {self.offset}"

    @property
    def fault(self) -> str:
        """The fault, its column, and the expected and found values: the text without place and advice."""
        text = f"{self.COLUMN_LABEL} {self.column}" if self.column is not None else ""
        text = ": ".join(part for part in (text, self.what) if part)
        wanted = "" if self.expected is None else f"expected {self.expected}"
        if self.found is None:
            return "; ".join(part for part in (text, wanted) if part)
        return ": ".join(part for part in (text, ", ".join(filter(None, (wanted, f"found {self.found}")))) if part)

    @property
    def advice(self) -> str:
        """What to do, or an empty text."""
        return "" if self.action is None else str(self.action)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), self.args), self.__dict__

    def to_json(self) -> dict[str, Any]:
        """The error as JSON values: the names of its class and base classes, its fields, and the attributes of its
        class that are JSON values."""
        known = {name: value for name, value in self.__dict__.items() if name != "__notes__" and _is_json(value)}
        names = [kind.__name__ for kind in type(self).__mro__ if issubclass(kind, GnomonError)]
        return {"types": names, **known, "action": None if self.action is None else self.action.name}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "GnomonError":
        """The error that `to_json` described. Its class is the first in `types` that this process has loaded."""
        members = dict(content)
        kinds = _subclasses(GnomonError)
        kind = next((kinds[name] for name in members.pop("types") if name in kinds), GnomonError)
        action = members["action"]
        members["action"] = Action[action] if action in Action.__members__ else None
        error = _made(kind, (members["what"],))
        error.__dict__.update(members)
        return error

    def with_fields(self, **fields: Any) -> Self:
        """A copy with other values of some fields, and with the same cause and traceback."""
        made = _made(type(self), (fields.get("what", self.what),))
        made.__dict__.update(self.__dict__ | fields)
        made.__cause__, made.__suppress_context__ = self.__cause__, self.__suppress_context__
        return made.with_traceback(self.__traceback__)  # type: ignore[return-value]


def check_memory(error: Exception) -> None:
    """Raise MemoryError if `error`, which a decoder or an encoder raised, says that memory ran out.

    Each handler that turns errors of pyarrow (whose ArrowMemoryError is an ArrowException) or of a codec into an error
    about the file calls this first."""
    if isinstance(error, MemoryError):
        raise error
    if not isinstance(error, ValueError) and NO_MEMORY.search(str(error)):  # a ValueError may quote the data
        raise MemoryError(str(error)) from error


def composed(place: str, fault: str, advice: str) -> str:
    """The text of an error, from its parts, on one line: control characters of the place are escaped, so that it still
    names the file, and line ends elsewhere become spaces."""
    place = _CONTROLS.sub(lambda found: repr(found[0])[1:-1], place)
    text = ": ".join(part for part in (place, fault) if part)
    return _LINE_ENDS.sub(" ", "; ".join(part for part in (text, advice) if part))


def _made(kind: type[GnomonError], args: tuple[Any, ...]) -> GnomonError:
    """An error made without its `__init__`, which may take any arguments. The caller sets the attributes afterwards."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error


def _subclasses(kind: type[GnomonError]) -> dict[str, type[GnomonError]]:
    """A class and all its subclasses, by name."""
    found = {kind.__name__: kind}
    for below in kind.__subclasses__():
        found |= _subclasses(below)
    return found


def _is_json(value: object) -> bool:
    if isinstance(value, Enum):
        return False
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_json(one) for name, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float)
