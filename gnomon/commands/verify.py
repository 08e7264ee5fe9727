"""gnomon verify: check that an index is whole and that its pointers lead to their rows."""

from typing import Annotated

import typer

from gnomon.commands.exit_codes import FAILED, FOUND, UNCHECKED
from gnomon.commands.output import IndexFolder, counted, megabytes, print_json, say
from gnomon.shadow.verify import ENTRIES_PER_FILE, PlainTable, Report
from gnomon.shadow.verify import verify as verify_index

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command()
def verify(
    index: IndexFolder,
    all: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Compare the keys of all rows, not of a few per index file, and look all keys up, not one in each of "
            "100 partitions.",
        ),
    ] = False,
    snapshot: Annotated[int | None, typer.Option(help="Verify this snapshot, not the newest.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON line.")] = False,
) -> int:
    """Read every file of an index and follow pointers to rows. Prints each fault; exit code 3 when there is one,
    4 where the table has removed the metadata of the version that the index covers, and all else is sound."""
    report = verify_index(index, None if all else ENTRIES_PER_FILE, snapshot)
    if json:
        print_json(report.to_json())
    else:
        for line in as_text(report):
            say(line)
    return FAILED if not report.is_sound else UNCHECKED if report.unchecked else FOUND


def as_text(report: Report) -> list[str]:
    """The report for people: each fault, then the checked objects."""
    lines = [f"fault: {fault}" for fault in report.faults]
    lines += [f"what to do about {counted(count, 'fault')}: {action}" for action, count in report.actions]
    lines += [f"not checked: {what}; run gnomon build" for what in report.unchecked]
    if report.not_counted:
        lines.append(f"not counted by the table's own reader: {report.not_counted}")
    if report.not_covered:
        lines.append(f"not covered yet: {counted(len(report.not_covered), 'file')} of the source; run gnomon build")
    if report.plain_table is not None and not report.plain_table.equals_snapshot:
        lines.append(f"a plain table on the folder shows {beyond(report.plain_table)} beyond the snapshot")
    number = "?" if report.snapshot is None else report.snapshot
    found = counted(len(report.faults), "fault") if report.faults else "sound"
    lines.append(
        f"snapshot {number}: {found}; read {counted(report.index_files, 'index file')} ({megabytes(report.bytes)}) of "
        f"{report.entries:,} entries, compared {counted(report.rows_compared, 'row')} of "
        f"{counted(report.source_files, 'source file')}"
        + (f", read the page maps of {report.page_maps:,}" if report.page_maps else "")
        + (f", looked up {counted(report.looked_up, 'key')}{_of_partitions(report)}" if report.looked_up else "")
        + (f", counted {report.counted:,} rows by the table's own reader" if report.counted is not None else "")
        + (f", read the records of {counted(report.appends, 'append')}" if report.appends else "")
    )
    return lines


def _of_partitions(report: Report) -> str:
    """The partitions whose keys were looked up, where there are several."""
    looked_up, there = report.partitions_looked_up, report.partitions
    return f" of {looked_up:,} of {counted(there, 'partition')}" if there > 1 else ""


def beyond(table: PlainTable) -> str:
    """The files and entries that a plain table shows beyond the snapshot."""
    files = counted(len(table.extra_files), "file") if table.extra_files else ""
    entries = f"{table.dead_entries:,} entries of files that changed or vanished" if table.dead_entries else ""
    return " and ".join(filter(None, [files, entries]))
