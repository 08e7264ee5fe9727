"""gnomon inspect and history: what an index covers, and its kept snapshots."""

from collections import Counter
from dataclasses import asdict
from json import loads
from typing import Annotated, Any

import typer

from gnomon.commands.exit_codes import FAILED, FOUND
from gnomon.commands.output import IndexFolder, complain, counted, megabytes, print_json, say
from gnomon.jobs.files import Access, check_access
from gnomon.shadow import IndexNotFound, OpenIndex, ShadowError, UsageError, to_json
from gnomon.shadow.metadata import DEEP, RANGE, Diff, IndexSpec, KeyColumn, Record, View, source_of
from gnomon.shadow.metadata import history as read_history
from gnomon.shadow.storage import storage_at
from gnomon.shadow.tables import LakeTable, table_around
from gnomon.shadow.verify import appends_report, plain_table

SHOWN_PARTITIONS = 20
app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


@app.command("inspect")
def inspect(
    index: IndexFolder,
    json: Annotated[bool, typer.Option("--json", help="Print as one JSON line.")] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="Also scan the index: distinct, least, greatest and most frequent keys.")
    ] = False,
    access: Annotated[
        bool,
        typer.Option(
            "--check-access", help="Try the reads and create-only writes of jobs instead, at a source or an index."
        ),
    ] = False,
) -> None:
    """Show keys, rows, bytes, buckets, partitions, the files of the source that are not covered yet, and whether a
    plain table on the folder shows the same."""
    if access:
        _show_access(check_access(index), json)
        return
    opened = _opened(index)
    facts = describe(opened)
    if stats:
        facts["statistics"] = statistics(opened)
    if json:
        print_json(facts)
        return
    for line in as_text(facts):
        say(line)


def _show_access(access: Access, as_json: bool) -> None:
    """Print what was tried. Exit with FAILED where a look-up or a build could not read."""
    if as_json:
        print_json({**asdict(access), "can_read": access.can_read, "can_write": access.can_write})
    else:
        say(f"{access.place}\n  credentials: {access.credentials}")
        for step, what in access.found.items():
            say(f"  ok       {step}: {what}")
        for step, what in access.refused.items():
            say(f"  refused  {step}: {what}")
        say(f"Builds and look-ups {'can' if access.can_read else 'cannot'} read it.")
        say(f"Jobs {'can' if access.can_write else 'cannot'} write there.")
    if not access.can_read:
        raise typer.Exit(FAILED)


def _opened(index: str) -> OpenIndex:
    """The index. UsageError, with the table's format, for the folder of a lake table."""
    try:
        return OpenIndex.of(index)
    except IndexNotFound as error:
        if found := table_around(storage_at(index).root):
            raise UsageError(f"no index; the folder belongs to {found}", index) from error
        raise


def describe(index: OpenIndex) -> dict[str, Any]:
    """The facts of an index at its newest snapshot."""
    spec, view = index.spec, index.view
    files = [file for segment in view.segments for file in segment.by_bucket.values()]
    by_bucket: Counter[int] = Counter()
    for file in files:
        by_bucket[file.bucket] += file.entries
    covered, partitions = coverage(index)
    plain = plain_table(storage_at(index.location), view)
    maps = [file.page_maps for file in view.covered.values() if file.page_maps is not None]
    return {
        "index": index.location,
        "snapshot": view.snapshot.number,
        "operation": view.snapshot.operation,
        "committed_at": view.snapshot.committed_at,
        "source": _source(spec, view),
        "keys": list(map(_column, spec.keys)),
        "include": list(map(_column, spec.include)),
        "rows": view.snapshot.rows,
        "ragged_rows": sum(file.ragged for file in view.covered.values()),
        "segments": len(view.segments),
        "index_files": len(files),
        "index_bytes": sum(file.size for file in files),
        "page_maps": {
            "recorded": bool(spec.page_maps),
            "deep": spec.page_maps == DEEP,
            "files": len(maps),
            "bytes": sum(file_maps.length for file_maps in maps),
        },
        "layout": spec.layout,
        "buckets": spec.buckets,
        "order": spec.order,
        "entries_by_bucket": [by_bucket[bucket] for bucket in range(spec.buckets)],
        "skew": skew([by_bucket[bucket] for bucket in range(spec.buckets)]),
        "partitions": view.snapshot.partitions,
        "coverage": covered,
        "coverage_by_partition": partitions,
        "plain_table": {
            "equals_snapshot": plain.equals_snapshot,
            "extra_files": len(plain.extra_files),
            "dead_entries": plain.dead_entries,
        },
        "appends": appends(index),
    }


def statistics(index: OpenIndex) -> dict[str, Any]:
    """The statistics of the keys; a key is an object of its columns."""
    found = index.statistics()

    def shown(key: tuple[Any, ...] | None) -> Any:
        return None if key is None else loads(to_json(dict(zip(found.columns, key, strict=True))))

    return {
        "rows": found.rows,
        "distinct_keys": found.distinct_keys,
        "null_rows": found.null_rows,
        "least": shown(found.least),
        "greatest": shown(found.greatest),
        "frequent": [{"key": shown(key), "rows": rows} for key, rows in found.frequent],
    }


def statistics_text(found: dict[str, Any]) -> list[str]:
    """The statistics for people."""

    def shown(key: dict[str, Any] | None) -> str:
        values = list(key.values()) if key is not None else []
        return "none" if not values else to_json(values[0] if len(values) == 1 else values)

    return [
        f"keys       {counted(found['distinct_keys'], 'distinct key')} of {counted(found['rows'], 'row')}, "
        f"{found['null_rows']:,} with a null",
        f"least      {shown(found['least'])}",
        f"greatest   {shown(found['greatest'])}",
        *(f"frequent   {shown(one['key'])} in {counted(one['rows'], 'row')}" for one in found["frequent"]),
    ]


def appends(index: OpenIndex) -> dict[str, Any]:
    """The number of appends and the unfinished ones, or the error of reading them."""
    try:
        return appends_report(storage_at(index.location)).to_json()
    except (ShadowError, OSError) as error:
        return {"error": str(error)}


def _source(spec: IndexSpec, view: View) -> dict[str, Any]:
    table = {"table": spec.source.table} if spec.is_of_table else {}
    return {"location": spec.source.location, **table, "format": spec.format, "files": view.source_files}


def _column(column: KeyColumn) -> dict[str, str]:
    mapped = {"source_type": column.source_type} if column.source_type else {}
    return {"name": column.name, "type": column.type, **mapped}


def _column_text(shown: dict[str, str]) -> str:
    source_type = shown.get("source_type")
    return f"{shown['name']} {source_type} ({shown['type']})" if source_type else f"{shown['name']} {shown['type']}"


def skew(entries: list[int]) -> float:
    """The largest bucket over the mean; 1 where all are equal."""
    return round(max(entries) * len(entries) / sum(entries), 3) if sum(entries) else 1.0


def coverage(index: OpenIndex) -> tuple[dict[str, Any], dict[str, dict[str, int]]]:
    """The files of the source that the snapshot does not cover, or the error of listing them; and, by partition, the
    covered rows and files, and the files not covered."""
    by_partition = {
        name: {"rows": rows, "files": 0, "new": 0, "changed": 0, "vanished": 0}
        for name, rows in index.view.snapshot.partitions.items()
    }
    for file in index.view.covered.values():
        by_partition[file.partition]["files"] += 1
    try:
        difference = index.coverage()
    except (ShadowError, OSError) as error:
        return {"complete": False, "error": str(error)}, by_partition
    for kind, paths in paths_by_kind(difference).items():
        for path in paths:
            name = _partition_of(index, path)
            by_partition.setdefault(name, {"rows": 0, "files": 0, "new": 0, "changed": 0, "vanished": 0})[kind] += 1
    counts: dict[str, Any] = {kind: len(paths) for kind, paths in paths_by_kind(difference).items()}
    covered = {"complete": difference.is_empty, **counts}
    if difference.lake_table is not None:
        covered["lake_table"] = difference.lake_table.to_json() | {"as_files": index.spec.source.as_files}
    return covered, dict(sorted(by_partition.items()))


def _partition_of(index: OpenIndex, path: str) -> str:
    return source_of(index.spec, index.view.snapshot.folders).partition_of(path, bool(index.spec.partitions))


def paths_by_kind(difference: Diff) -> dict[str, list[str]]:
    """The files that are new, changed or vanished."""
    return {
        "new": [info.path for info in difference.new],
        "changed": [info.path for info in difference.changed],
        "vanished": list(difference.vanished),
    }


def as_text(facts: dict[str, Any]) -> list[str]:
    """The facts for people."""
    source, buckets, state = facts["source"], facts["entries_by_bucket"], facts["coverage"]
    if "error" in state:
        covered = f"unknown: {state['error']}"
    elif state["complete"]:
        covered = "complete: every file of the source in its current state" if source["location"] else "all rows"
        covered += " (only a build sees partitions that are new in the catalog)" if "table" in source else ""
    else:
        covered = (
            f"{state['new']} new, {state['changed']} changed, {state['vanished']} vanished files: run gnomon build"
        )
    location = f"table {source['table']} at {source['location']}" if "table" in source else source["location"]
    of_ranges = " ranges of keys" if facts["order"] == RANGE else ""
    per_entry = facts["index_bytes"] / max(sum(buckets), 1)
    lines = [
        f"index      {facts['index']}",
        f"snapshot   {facts['snapshot']} ({facts['operation']}, {facts['committed_at']})",
        f"source     {location} ({source['format']}, {counted(source['files'], 'file')})"
        if source["location"]
        else "source     none: the entries hold the values",
        f"key        {', '.join(map(_column_text, facts['keys']))}",
        f"rows       {facts['rows']:,}" + (f", {ragged:,} ragged" if (ragged := facts["ragged_rows"]) else ""),
        f"size       {megabytes(facts['index_bytes'])} in {counted(facts['index_files'], 'index file')} of "
        f"{counted(facts['segments'], 'segment')}, {per_entry:.1f} bytes an entry",
        f"layout     {facts['layout']}",
        f"buckets    {facts['buckets']}{of_ranges}, of {least_to_most(buckets)} entries, the largest "
        f"{facts['skew']:.2f} times the mean",
        f"coverage   {covered}",
        f"as table   {plain_text(facts['plain_table'])}",
    ]
    if table := state.get("lake_table"):
        chosen = " as asked for with --as-files" if table["as_files"] else ""
        belongs = f"the source belongs to {LakeTable(table['format'], table['root'], table['file'])}: files are indexed"
        lines.append(f"warning    {belongs}{chosen}, rows that the table deleted or replaced are answered")
    maps = facts["page_maps"]
    if maps["recorded"]:
        mapped = f"{maps['files']:,} of {counted(source['files'], 'source file')}"
        deep = ", with value maps" if maps["deep"] else ""
        lines.insert(6, f"page maps  {megabytes(maps['bytes'])}, of {mapped}{deep}")
    if facts["include"]:
        what = "included " if source["location"] else "values   "
        lines.insert(4, f"{what}  {', '.join(map(_column_text, facts['include']))}")
    if text := appends_text(facts["appends"]):
        lines.append(f"appends    {text}")
    if found := facts.get("statistics"):
        lines += statistics_text(found)
    return lines + partitions_text({name: counts for name, counts in facts["coverage_by_partition"].items() if name})


def partitions_text(partitions: dict[str, dict[str, int]]) -> list[str]:
    """A line for each partition. If there are many, one line for all, and one for each of the first that are not
    covered."""
    if len(partitions) <= SHOWN_PARTITIONS:
        return [f"partition  {name} {partition_text(counts)}" for name, counts in partitions.items()]
    rows, files = ([counts[what] for counts in partitions.values()] for what in ("rows", "files"))
    first, *_, last = partitions
    lines = [
        f"partitions {len(partitions):,}, from {first} to {last}, of {least_to_most(rows)} rows in "
        f"{least_to_most(files)} files each"
    ]
    behind = {
        name: counts for name, counts in partitions.items() if counts["new"] or counts["changed"] or counts["vanished"]
    }
    lines += [f"partition  {name} {partition_text(behind[name])}" for name in list(behind)[:SHOWN_PARTITIONS]]
    if len(behind) > SHOWN_PARTITIONS:
        lines.append(f"           and {len(behind) - SHOWN_PARTITIONS:,} more that are not covered (--json lists all)")
    return lines


def least_to_most(counts: list[int]) -> str:
    """A range of numbers: "3", "1 to 300"."""
    least, most = min(counts), max(counts)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def appends_text(found: dict[str, Any]) -> str:
    """The appends; empty where there were none."""
    if "error" in found:
        return f"unknown: {found['error']}"
    void = f", {found['void']:,} void (the index was built again, or the table changed)" if found["void"] else ""
    left = [f"batch {one['batch']} of {counted(one['rows'], 'row')}" for one in found["open"]]
    is_open = f", {len(left):,} open: {', '.join(left)} (run gnomon dedup to finish it)" if left else ""
    return f"{found['appends']:,}{void}{is_open}" if found["appends"] else ""


def plain_text(plain: dict[str, Any]) -> str:
    """The difference of a plain table on the folder from the snapshot."""
    if plain["equals_snapshot"]:
        return "a plain table on the folder shows what the snapshot holds"
    dead = f"{plain['dead_entries']:,} dead {'entry' if plain['dead_entries'] == 1 else 'entries'}"
    beyond = f"{counted(plain['extra_files'], 'file')} and {dead}"
    return f"a plain table on the folder shows {beyond} more (gnomon compact, gnomon vacuum)"


def partition_text(counts: dict[str, int]) -> str:
    """The covered rows and files of a partition, and the files not covered."""
    missing = [f", {counts[kind]:,} {kind}" for kind in ("new", "changed", "vanished") if counts[kind]]
    return f"{counted(counts['rows'], 'row')} in {counted(counts['files'], 'file')}{''.join(missing)}"


PLURALS = ("segments", "rows", "files")  # in the names of counts


@app.command("history")
def history(
    index: IndexFolder,
    json: Annotated[bool, typer.Option("--json", help="Print each snapshot as a JSON line.")] = False,
) -> int:
    """Show the kept snapshots, the newest last; gnomon get --snapshot reads one of them."""
    records = read_history(index)
    if not json:
        say("snapshot  committed                    operation        rows  segments  buckets  what")
    for record in records:
        if json:
            print_json(record.to_json())
        elif record.error:
            complain(record.error)
        else:
            say(history_as_text(record))
    return FAILED if any(record.error for record in records) else FOUND


def history_as_text(record: Record) -> str:
    """A snapshot on one line."""
    counts = [f"{count:,} {_words(name, count)}" for name, count in record.counts.items() if count]
    version = [f"table version {record.table_version}"] if record.table_version is not None else []
    what = ", ".join([f"batch {record.batch}"] * (record.batch is not None) + version + counts)
    line = (
        f"{record.snapshot:>8}  {record.committed_at:<27}  {record.operation:<9}  {record.rows:>10,}  "
        f"{record.segments:>8}  {record.buckets:>7}  {what}"
    )
    return line.rstrip()


def _words(name: str, count: int) -> str:
    """Return the words for a count: "1 segment replaced", "2 segments replaced"."""
    words = name.split("_")
    return " ".join(word[:-1] if count == 1 and word in PLURALS else word for word in words)
