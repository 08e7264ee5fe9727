"""Error texts without the server's folders, buckets and addresses: a caller learns which file, never where the server
keeps it.

Every pattern takes linear time, since a text may quote any bytes of a damaged file. Texts that a caller sent are never
redacted: the missing parts would reveal which folders the server has."""

import re
from dataclasses import dataclass

from gnomon.base.errors import GnomonError, composed

MOST_CHARACTERS = 2000  # of a redacted text
MOST_READ = 64 * 1024  # of a text before it is redacted
ADDRESS, COLUMN = "(address)", "(a column)"

# The folders of an absolute path; what follows the last slash stays. A path inside a word is left alone.
_FOLDERS = re.compile(r"(?:\bfile:/{1,3}|(?<![\w:/.%=&?-])/)(?:[^\s/'\"`,;:]+/)+")
# The addresses in errors of a store's client: host or bucket, and the path there.
_ADDRESSES = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s'\"`,;)\]]*")
_OF_THE_WEB = ("http://", "https://")


@dataclass(frozen=True)
class Roots:
    """The names that no answer may contain: folders, each with the name to show in its place; hidden partition columns,
    whose folders are removed, too; all other hidden columns."""

    folders: tuple[tuple[str, str], ...] = ()
    partitions: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def __add__(self, other: "Roots") -> "Roots":
        return Roots(self.folders + other.folders, self.partitions + other.partitions, self.columns + other.columns)


def redact(error: BaseException, roots: Roots) -> str:
    """The text of an error without the server's folders. Of an error with fields the path is cut to its name below a
    root, and the other fields are cleaned before the text is composed from them."""
    if not isinstance(error, GnomonError):
        text = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
        return _cleaned(text, roots)[:MOST_CHARACTERS]
    shown = error.with_fields(
        path=None if error.path is None else _hidden(_below_root(error.path, roots), roots),
        column=COLUMN if error.column in roots.columns else error.column,
    )
    return composed(shown.place, _cleaned(shown.fault, roots), shown.advice)[:MOST_CHARACTERS]


def _below_root(path: str, roots: Roots) -> str:
    """The part of a path below a root; of any other absolute path or address, the last name."""
    for root, name in _longest_first(roots):
        if path.rstrip("/") == root:
            return name
        if path.startswith(f"{root}/"):
            return path[len(root) + 1 :]
    if path.startswith("/"):
        return path.rstrip("/").rpartition("/")[2]
    return _ADDRESSES.sub(_last_of_address, path)


def _cleaned(text: str, roots: Roots) -> str:
    """A text that may quote paths and addresses, without folders: what pyarrow, a store or an operating system said."""
    if len(text) > MOST_READ:
        text = text[:MOST_READ].rpartition(" ")[0]  # no half of a path at the end
    for root, name in _longest_first(roots):
        text = _without_root(text, root, name)
    return _hidden(_FOLDERS.sub("", _ADDRESSES.sub(_last_of_address, text)), roots)


def _hidden(text: str, roots: Roots) -> str:
    """A text without the partition columns and the key columns that are not shown."""
    for column in roots.partitions:
        text = _without_partition(text, column)
    for column in roots.columns:
        text = re.sub(rf"(?<!\w){re.escape(column)}(?!\w)", COLUMN, text)
    return text


def _longest_first(roots: Roots) -> list[tuple[str, str]]:
    """The root folders without a slash at their end; the root of the file system is left out."""
    pairs = sorted(roots.folders, key=lambda pair: -len(pair[0]))
    return [(root.rstrip("/"), name) for root, name in pairs if root.rstrip("/")]


def _without_root(text: str, root: str, name: str) -> str:
    """The text with the root removed from all paths below it. A folder below the root with the same name stays."""
    found = rf"(?<![\w.%-]){re.escape(root)}"
    return re.sub(rf"{found}(?![\w-]|\.\w)", name, re.sub(rf"{found}/", "", text))


def _last_of_address(found: re.Match[str]) -> str:
    """The file name in the URL of a store; ADDRESS for a URL of the web."""
    url = found[0].rstrip(":.")
    path = url.partition("://")[2].partition("/")[2]
    last = "" if url.lower().startswith(_OF_THE_WEB) else path.rpartition("/")[2]
    return (last or ADDRESS) + found[0][len(url) :]


def _without_partition(text: str, column: str) -> str:
    """The text, the folders of a partition column cut out of its paths."""
    begin = rf"(?<![^\s/'\"`(]){re.escape(column)}="
    return re.sub(rf"{begin}[^/\n]{{0,300}}/|{begin}[^\s/'\"`,;:)]*", "", text)
