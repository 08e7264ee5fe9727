"""gnomon delete, upsert and convert-deletes: rows of a lake table, deleted and replaced by key."""

from typing import Annotated, Any, Literal

import typer

from gnomon.commands.build import parse_options
from gnomon.commands.dedup import dedup, read_rows
from gnomon.commands.engines import EngineName, EngineOption, Engines
from gnomon.commands.exit_codes import FOUND, NOT_FOUND
from gnomon.commands.get import KeyTexts, key_texts, parse_key_argument
from gnomon.commands.output import Conf, IndexFolder, Json, Master, counted, megabytes, print_json, say
from gnomon.commands.progress import shown_progress
from gnomon.jobs.build import FORMAT_NAMES
from gnomon.jobs.dedup import (
    ChangeResult,
    Target,
    batch_digest,
    convert_equality_deletes,
    key_table,
    upsert_rows,
)
from gnomon.jobs.dedup import delete as delete_keys
from gnomon.jobs.load import key_file
from gnomon.shadow import UsageError

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count rows, files and bytes; write nothing.")]
KEY_FILES = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson")
OPTIONS = ("--keys", "--batch-id", "--dry-run", "--json")  # of delete


@app.command()
def delete(
    index: IndexFolder,
    key: KeyTexts = None,
    keys_file: Annotated[
        str | None,
        typer.Option(
            "--keys", help="A file of keys: one a line, or Parquet, CSV with a header or JSON lines by its ending."
        ),
    ] = None,
    batch_id: Annotated[str | None, typer.Option(help="A name: a second delete of this name does nothing.")] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> int:
    """Delete every live row of the keys in the Delta or Iceberg table of INDEX, by one commit of the table. The table
    is not scanned. Older versions keep the rows. Exit code 1 when no key has a row."""
    if mistaken := [text for text in key or [] if text.partition("=")[0] in OPTIONS]:  # a delete cannot be taken back
        raise UsageError(f"delete: {mistaken[0]} stands after -- and would be a key; write options before --")
    opened = Target(index, None).opened
    if opened is None:
        raise UsageError("no index there", index)
    if keys_file is not None and keys_file.lower().endswith(KEY_FILES):
        if key:
            raise UsageError("delete: expected keys as arguments or --keys, not both")
        given = key_file(keys_file, [column.name for column in opened.spec.keys])
        result = delete_keys(None, index, given, batch_id, dry_run)
    else:
        texts = list(key_texts(key or [], keys_file))
        if not texts and keys_file is None and key != ["-"]:
            raise UsageError("delete: expected one key or more, - for those of standard input, or --keys FILE")
        table = key_table(texts, opened.spec)
        keys = table if table is not None else [parse_key_argument(text, opened) for text in texts]
        with shown_progress() as progress:
            result = delete_keys(None, index, keys, batch_id, dry_run, progress)
    _show(result, json)
    return NOT_FOUND if result.rows_deleted == 0 and not result.known_batch else FOUND


@app.command()
def upsert(
    index: IndexFolder,
    batch: Annotated[str, typer.Argument(help="The batch: a file, or a folder of files, with the table's columns.")],
    batch_id: Annotated[str | None, typer.Option(help="Name of the batch; by default a digest of its files.")] = None,
    order_by: Annotated[
        list[str] | None,
        typer.Option(help="Of several rows with one key the last by this column counts: 'col' or 'col desc'."),
    ] = None,
    update_only: Annotated[bool, typer.Option("--update-only", help="Leave rows out whose key is new.")] = False,
    insert_only: Annotated[
        bool, typer.Option("--insert-only", help="Leave rows out whose key is there: gnomon dedup, and its --order-by.")
    ] = False,
    all_rows: Annotated[
        bool, typer.Option("--all", help="Replace all rows of a key that has several; by default it is refused.")
    ] = False,
    delete_where: Annotated[
        str | None,
        typer.Option(help="A column of the batch alone: rows with true, d or delete only delete those with their key."),
    ] = None,
    delete_where_null: Annotated[
        str | None, typer.Option(help="A column of the table: rows with null in it only delete those with their key.")
    ] = None,
    null_keys: Annotated[
        Literal["refuse", "reject", "dedup"] | None,
        typer.Option(
            help="Rows with a null in their key: refuse the batch (the default), leave them out, or compare nulls as "
            "equal (the default with --insert-only)."
        ),
    ] = None,
    format: Annotated[str, typer.Option(help=f"Format of the batch's files: {', '.join(FORMAT_NAMES)}.")] = "auto",
    option: Annotated[
        list[str] | None, typer.Option(help="Option of the batch's format: name=value, as in build.")
    ] = None,
    engine: EngineOption = EngineName.AUTO,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
) -> None:
    """Put the rows of BATCH in the place of those with their key, and add the others, by one commit of the Delta or
    Iceberg table of INDEX. The table is not scanned. A batch is committed once."""
    if insert_only:
        if update_only or all_rows or delete_where or delete_where_null or null_keys == "refuse":
            raise UsageError("--insert-only: expected no other option of changes; it adds rows as gnomon dedup does")
        spark: dict[str, Any] = {"engine": engine, "master": master, "conf": conf}
        of_batch: dict[str, Any] = {"batch_id": batch_id, "order_by": order_by, "format": format, "option": option}
        dedup(index, batch, null_keys=null_keys or "dedup", json=json, **of_batch, **spark)
        return
    options = parse_options(option or [], None)
    target = Target(index, None)
    opened = target.opened
    name = batch_digest(batch, format) if batch_id is None else batch_id
    with Engines("upsert", engine, master, conf) as engines, shown_progress(not engines.is_local) as progress:
        rows = read_rows(engines.started(), engines.session, batch, opened, format, options)
        result = upsert_rows(
            rows,
            target,
            name,
            progress,
            order_by=order_by or [],
            null_keys=null_keys or "refuse",
            update_only=update_only,
            replace_all=all_rows,
            delete_where=delete_where,
            delete_where_null=delete_where_null,
        )
    _show(result, json)


@app.command("convert-deletes")
def convert_deletes(
    index: IndexFolder,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Replace the equality deletes of the Iceberg table of INDEX by position deletes or deletion vectors, in one
    commit. Its rows stay the same; its readers get faster."""
    result = convert_equality_deletes(index, dry_run)
    if json:
        print_json(result.to_json())
        return
    deletes, version = counted(result.rows_read, "equality delete"), result.table_version
    rows = f"{counted(result.rows_deleted or 0, 'row')} of {counted(result.files_changed or 0, 'file')}"
    if dry_run and result.rows_read:
        say(f"would replace {deletes}, which delete {rows}, by {result.way}, from version {version}")
    elif result.rows_read:
        size, seconds = megabytes(result.bytes_written or 0), f"in {result.seconds:.1f} s"
        say(f"version {version}: {deletes} replaced; they delete {rows}, now by {result.way} of {size}; {seconds}")
    else:
        say(f"version {version}: there are no equality deletes; nothing was changed")


def _show(result: ChangeResult, json: bool) -> None:
    if json:
        print_json(result.to_json())
        return
    if result.known_batch:
        say(f"batch {result.batch_id!r} was committed before, by snapshot {result.snapshot}: nothing to do")
        return
    if result.dry_run:
        say(
            f"would delete {counted(result.rows_deleted or 0, 'row')} in {counted(result.files_changed or 0, 'file')} "
            f"of {megabytes(result.bytes_written or 0)}, by {result.way}, from version {result.table_version}"
        )
        return
    if not (result.written or result.rows_deleted or result.files_added or result.rows_deleted is None):
        why = "no row has one of the keys" if result.rows_read else "there are no keys"
        say(f"version {result.table_version}: {why}; no row was changed")
        return
    parts = []
    if result.written:
        updated = f", {result.updated:,} of them in place of others" if result.updated is not None else ""
        parts.append(f"{counted(result.written, 'row')} written in {counted(result.files_added, 'file')}{updated}")
    if result.rows_deleted is not None:
        parts.append(
            f"{counted(result.rows_deleted, 'row')} deleted in {counted(result.files_changed or 0, 'file')} by "
            f"{result.way} of {megabytes(result.bytes_written or 0)}"
        )
    lost = {"absent": "with a new key", "rejected": "with a null in the key", "duplicates_in_batch": "not the last"}
    parts += [
        f"{getattr(result, name):,} rows left out: {what}" for name, what in lost.items() if getattr(result, name)
    ]
    say(f"version {result.table_version}: {'; '.join(parts)}; in {result.seconds:.1f} s")
