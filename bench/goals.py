"""The goals of the design for a fetch, and the results of a run."""

from collections.abc import Sequence

from bench.contenders import (
    Contender,
    DuckDbOnFiles,
    GnomonOverHttp,
    GnomonOverHttpWithKnownPages,
    GnomonWithKnownPages,
    LanceCopy,
    PolarsOnFiles,
)
from bench.lake import AS_SPARK_WRITES, MEGABYTE_PAGES
from bench.page import digits, row
from bench.rounds import Line

HTTP_MS = 1.5
KNOWN_MS = 0.6
FASTER_THAN_SCANS = 20.0
OVER_HTTP: dict[type[Contender], str] = {GnomonOverHttp: "", GnomonOverHttpWithKnownPages: ", page known"}
TITLES = {AS_SPARK_WRITES: "as Spark writes it", MEGABYTE_PAGES: "pages of 1 MB"}


def goals(lines: Sequence[Line]) -> str:
    """The goals as a Markdown table."""

    def p50(workload: str, contender: type[Contender]) -> float:
        return next(line.p50_ms for line in lines if (line.workload, line.contender) == (workload, contender))

    rows = [row(["goal for the p50 of a fetch", "measured", ""]), row(["---", "---:", "---"])]
    for workload, title in TITLES.items():
        known = p50(workload, GnomonWithKnownPages)
        less = p50(workload, LanceCopy) / known
        rows += [
            _goal(f"{title}, in process, page known: under {KNOWN_MS:g} ms", f"{digits(known)} ms", known < KNOWN_MS),
            _goal(f"{title}, in process, page known: faster than a Lance copy", f"{digits(less)} times", less > 1),
        ]
        for over_http, state in OVER_HTTP.items():
            ms = p50(workload, over_http)
            rows.append(_goal(f"{title}, over HTTP{state}: under {HTTP_MS:g} ms", f"{digits(ms)} ms", ms < HTTP_MS))
    for over_http, state in OVER_HTTP.items():
        for peer in (DuckDbOnFiles, PolarsOnFiles):
            faster = p50(AS_SPARK_WRITES, peer) / p50(AS_SPARK_WRITES, over_http)
            what = f"as Spark writes it, over HTTP{state}: {FASTER_THAN_SCANS:g} times faster than {peer.name}"
            rows.append(_goal(what, f"{digits(faster)} times", faster >= FASTER_THAN_SCANS))
    return "\n".join(rows) + "\n"


def _goal(what: str, measured: str, reached: bool) -> str:
    return row([what, measured, "reached" if reached else "missed"])
