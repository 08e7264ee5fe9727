"""Error texts without the server's folders, buckets and addresses: a caller learns which file, never where the server
keeps it.

Every pattern here takes time linear in the text, which may hold whatever a damaged file holds. Texts that a caller sent
are never redacted: what is cut of them would tell which folders the server has."""

import re
from dataclasses import dataclass

from gnomon.base.errors import GnomonError, composed

MOST_CHARACTERS = 2000  # of a redacted text
MOST_READ = 64 * 1024  # of a text before
ADDRESS, COLUMN = "(address)", "(a column)"

# The folders of an absolute path; what follows the last slash stays. A path inside a word is left alone.
_FOLDERS = re.compile(r"(?:\bfile:/{1,3}|(?<![\w:/.%=&?-])/)(?:[^\s/'\"`,;:]+/)+")
# Where a store was asked, as its client says it: host or bucket, and the path there.
_ADDRESSES = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s'\"`,;)\]]*")
_OF_THE_WEB = ("http://", "https://")


@dataclass(frozen=True)
class Roots:
    """What no answer may name: folders, each with what to call it instead; the partition columns that are not shown,
    with the folders of their values; the key columns that are not shown."""

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
    """A path below a root by its name there, any other absolute path or address by its last name."""
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
    """The text, a root cut off the paths below it. Folders below it that are called like it stay."""
    found = rf"(?<![\w.%-]){re.escape(root)}"
    return re.sub(rf"{found}(?![\w-]|\.\w)", name, re.sub(rf"{found}/", "", text))


def _last_of_address(found: re.Match[str]) -> str:
    """The file that a URL of a store names; nothing of an address of the web."""
    url = found[0].rstrip(":.")
    path = url.partition("://")[2].partition("/")[2]
    last = "" if url.lower().startswith(_OF_THE_WEB) else path.rpartition("/")[2]
    return (last or ADDRESS) + found[0][len(url) :]


def _without_partition(text: str, column: str) -> str:
    """The text, the folders of a partition column cut out of its paths."""
    begin = rf"(?<![^\s/'\"`(]){re.escape(column)}="
    return re.sub(rf"{begin}[^/\n]{{0,300}}/|{begin}[^\s/'\"`,;:)]*", "", text)
