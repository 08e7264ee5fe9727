"""Error texts without the server's folders and its stores' addresses: a caller is told which file, never where the
server keeps it."""

import re
from collections.abc import Iterable

# The folders of an absolute path or file URL; what follows the last slash stays. A URL of the web, or a path inside
# a word, is left alone.
_FOLDERS = re.compile(r"(?:file:/{1,3}|(?<![\w:/.%=&?-])/)(?:[^\s/'\"`,;:]+/)+")
# Where a store was asked, as its client says it.
_ADDRESSES = re.compile(r"https?://[^\s'\"`)\]]+")


def redact(error: BaseException, roots: Iterable[tuple[str, str]]) -> str:
    """The text of an error with each root folder (given with what to call it) cut off the paths below it."""
    text = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
    for root, name in sorted(roots, key=lambda pair: -len(pair[0])):
        root = root.rstrip("/")
        if root:
            text = text.replace(f"{root}/", "").replace(root, name)
    path = getattr(error, "path", None)
    if isinstance(path, str) and path.startswith("/"):
        text = text.replace(path, path.rsplit("/", 1)[-1])
    return _FOLDERS.sub("", _ADDRESSES.sub("(address)", text))
