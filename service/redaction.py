"""Error texts without the server's folders, buckets and addresses: a caller is told which file, never where the server
keeps it.

Every pattern here takes time linear in the text, which may hold whatever a damaged file holds. Texts that a caller sent
are never redacted: what is cut of them would tell which folders the server has."""

import re
from dataclasses import dataclass

MOST_CHARACTERS = 2000  # of a redacted text
MOST_READ = 64 * 1024  # of a text before
ADDRESS, COLUMN = "(address)", "(a column)"

# The folders of an absolute path; what follows the last slash stays. A path inside a word is left alone.
_FOLDERS = re.compile(r"(?:\bfile:/{1,3}|(?<![\w:/.%=&?-])/)(?:[^\s/'\"`,;:]+/)+")
# Where a store was asked, as its client says it: host or bucket, and the path there.
_ADDRESSES = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s'\"`,;)\]]*")
PATTERNS = (_FOLDERS, _ADDRESSES)
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
    """The text of an error with each root folder cut off the paths below it."""
    text = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
    if len(text) > MOST_READ:
        text = text[:MOST_READ].rpartition(" ")[0]  # no half of a path at the end
    for root, name in sorted(roots.folders, key=lambda pair: -len(pair[0])):
        root = root.rstrip("/")
        if root:
            text = _without_root(text, root, name)
    path = getattr(error, "path", None)
    if isinstance(path, str) and path.startswith("/"):
        text = text.replace(path, path.rsplit("/", 1)[-1])
    text = _FOLDERS.sub("", _ADDRESSES.sub(_last_of_address, text))
    for column in roots.partitions:
        text = _without_partition(text, column)
    for column in roots.columns:
        text = re.sub(rf"(?<!\w){re.escape(column)}(?!\w)", COLUMN, text)
    return text[:MOST_CHARACTERS]


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
