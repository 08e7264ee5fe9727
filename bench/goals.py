"""The goals of the design for a fetch over HTTP, and the results of a run."""

from collections.abc import Sequence

from bench.contenders import Contender, DuckDbOnFiles, GnomonOverHttp, LanceCopy, PolarsOnFiles
from bench.lake import AS_SPARK_WRITES, MEGABYTE_PAGES
from bench.page import digits, row
from bench.rounds import Line

HTTP_MS = 3.0
TIMES_LANCE = 5.0
FASTER_THAN_SCANS = 10.0


def goals(lines: Sequence[Line]) -> str:
    """The goals as a Markdown table."""

    def p50(workload: str, contender: type[Contender]) -> float:
        return next(line.p50_ms for line in lines if (line.workload, line.contender) == (workload, contender))

    ms = p50(MEGABYTE_PAGES, GnomonOverHttp)
    times_lance = ms / p50(MEGABYTE_PAGES, LanceCopy)
    rows = [
        row(["goal for a fetch over HTTP, p50", "measured", ""]),
        row(["---", "---:", "---"]),
        row([f"pages of 1 MB: under {HTTP_MS:g} ms", f"{digits(ms)} ms", _word(ms < HTTP_MS)]),
        row(
            [
                f"pages of 1 MB: at most {TIMES_LANCE:g} times a Lance copy in process",
                f"{digits(times_lance)} times",
                _word(times_lance <= TIMES_LANCE),
            ]
        ),
    ]
    for peer in (DuckDbOnFiles, PolarsOnFiles):
        faster = p50(AS_SPARK_WRITES, peer) / p50(AS_SPARK_WRITES, GnomonOverHttp)
        title = f"as Spark writes it: {FASTER_THAN_SCANS:g} times faster than {peer.name}"
        rows.append(row([title, f"{digits(faster)} times", _word(faster >= FASTER_THAN_SCANS)]))
    return "\n".join(rows) + "\n"


def _word(reached: bool) -> str:
    return "reached" if reached else "missed"
