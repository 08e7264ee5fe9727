"""The media type and the content coding of an answer, by the preferences of the caller (RFC 9110, section 12.5)."""

import re
from collections.abc import Iterable, Iterator, Sequence

from gnomon.service.errors import NotAcceptable

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
ENCODINGS = ("gzip", "zstd")  # gzip if the caller prefers neither: it takes less time here
OFFERED = (JSON, ARROW)  # the first if the caller prefers neither

_RANGE = re.compile(r"([^\s;/]+)/([^\s;/]+)")
_QUALITY = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE)


def chosen(accept: Iterable[str], offered: Sequence[str] = OFFERED) -> str:
    """The media type for these `Accept` headers; without headers, the first offered one. Among types of equal quality,
    a type that is named in full precedes a match of `*`. NotAcceptable names the offered types."""
    liked = _liked(accept)
    if not liked:
        return offered[0]
    best = max(offered, key=lambda kind: _quality(kind, liked))  # the first of equals
    if _quality(best, liked)[0] == 0:
        raise NotAcceptable(f"Accept: none of the media types is given here; there are {', '.join(offered)}")
    return best


def chosen_encoding(accept: Iterable[str]) -> str:
    """The content coding for these `Accept-Encoding` headers: the one of `ENCODINGS` with the highest quality, the
    first among equals; "" if none is accepted, or if the caller prefers `identity`."""
    liked = {name.strip(): quality for name, quality in _codings(accept)}
    wanted = {name: liked.get(name, liked.get("*", 0.0)) for name in ENCODINGS}
    best = max(ENCODINGS, key=lambda name: wanted[name])
    return best if wanted[best] > 0 and wanted[best] >= liked.get("identity", 0.0) else ""


def _codings(accept: Iterable[str]) -> Iterator[tuple[str, float]]:
    for text in ",".join(accept).lower().split(","):
        name, _, quality = text.partition(";")
        found = _QUALITY.fullmatch(quality.strip())
        if found or not quality.strip():
            yield name, float(found[1]) if found else 1.0


def _liked(accept: Iterable[str]) -> dict[str, float]:
    """The quality of each media range. Texts that are not media ranges are ignored."""
    liked: dict[str, float] = {}
    for text in ",".join(accept).lower().split(","):
        name, *parameters = (part.strip() for part in text.split(";"))
        qualities = [part for part in parameters if part.startswith("q=")]
        found = _QUALITY.fullmatch(qualities[0]) if qualities else None
        if _RANGE.fullmatch(name) and (found or not qualities):
            liked[name] = max(liked.get(name, 0.0), float(found[1]) if found else 1.0)
    return liked


def _quality(kind: str, liked: dict[str, float]) -> tuple[float, int]:
    """The quality of a media type, from the most specific range that matches it, and how specific this range is."""
    ranges = ("*/*", f"{kind.partition('/')[0]}/*", kind)
    return next(((liked[ranges[i]], i) for i in (2, 1, 0) if ranges[i] in liked), (0.0, 0))
