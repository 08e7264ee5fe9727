"""The words of errors and addresses, without secrets."""

import re

MOST_WORDS = 300  # characters
CODE = re.compile(r"<Code>(.*?)</Code>")
_BRANCH = re.compile(r"\s*↳\s*")  # of deltalake's trees of causes
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_QUERY = re.compile(r"""(?<=://)([^\s?]+)\?[^\s)\]>"']*?(?=[:;,.]*(?:[\s)\]>"']|$))""")
_TOOK = re.compile(r" in \d+(\.\d+)?(ns|µs|us|ms|s)\b")
_TRIES = re.compile(r", max_retries: \d+, retry_timeout: [\d.]+\w+\b")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")


def without_secrets(text: str) -> str:
    """The text, with user and password removed from its URLs."""
    return _PASSWORD.sub("", text)


def words_of(error: BaseException) -> str:
    """The first line of a library's error, of at most 300 characters, with deltalake's tree of causes and the code of
    an XML answer on it, and without colours, queries of URLs, secrets, and how long the library's tries took. Of an
    error of the operating system, what it says and of which file."""
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
        return without_secrets(" ".join(text.split()))
    text = str(error).partition("\n\nDebug source")[0]
    code = CODE.search(text)
    text = _BRANCH.sub(": ", _COLOUR.sub("", text.partition("<?xml")[0])).strip().partition("\n")[0]
    text = _QUERY.sub(r"\1", _TRIES.sub("", _TOOK.sub("", text)))
    words = without_secrets(" ".join(text.split()).rstrip(" :"))[:MOST_WORDS]
    return f"{words} {code[1]}" if code else words
