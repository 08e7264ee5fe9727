"""Appends to Delta Lake tables by deltalake: one commit with an application transaction."""

import json
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaProtocolError, SchemaMismatchError
from deltalake.transaction import AddAction, RemoveAction

from gnomon.shadow.errors import UsageError
from gnomon.shadow.storage import probe, storage_at, words_of
from gnomon.shadow.tables.delta import MAPPING, column_type, delta_errors, open_table, with_values
from gnomon.shadow.tables.lake_append import (
    AppendTarget,
    NewFile,
    TableCommit,
    attempts,
    changed,
    check_files,
    outcome,
    refuse,
)
from gnomon.shadow.tables.partitions import NULL_VALUE, partition_values

CODEC = "SNAPPY"
# The writer features of tables to which deltalake commits. They require nothing of an append, or nothing as long as no
# column uses them, which `_fields` checks.
FEATURES = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
}
# Properties of a column that restrict its values.
RULES = {
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "delta.invariants": "a column with an invariant",
}
REFUSED = (DeltaProtocolError, SchemaMismatchError)
EXPIRY = "delta.setTransactionRetentionDuration"  # Spark's checkpoints drop transactions that are older
NOT_NULL = ("nullable", "containsNull", "valueContainsNull")  # members of a type in the schema


def append_target(place: str, partitions: Mapping[str, str]) -> AppendTarget:
    """As `lake_append.append_target`."""
    name = f"delta:{place}"
    check_store(place)
    table = open_to_commit(place, name)
    found = list(table.metadata().partition_columns)
    if found != list(partitions):
        refuse(f"it is partitioned by {', '.join(found) or 'nothing'}, its index by {', '.join(partitions)}", name)
    return AppendTarget(str(table.metadata().id), _folder_of, _fields(table, name), CODEC, None)


def _folder_of(values: Mapping[str, str | None]) -> str:
    """The folder as the table's own writers lay it. Some readers take the values from it, and fail on the whole table
    where a file lies elsewhere."""
    texts = {name: NULL_VALUE if text is None else quote(text, safe="") for name, text in values.items()}
    return "/".join(f"{name}={text}" for name, text in texts.items())


def last_number(place: str, uuid: str, writer: str) -> int:
    """As `lake_append.last_number`."""
    return number_of(open_to_commit(place, f"delta:{place}"), place, uuid, writer)


def number_of(table: DeltaTable, place: str, uuid: str, writer: str) -> int:
    found = str(table.metadata().id)
    if found != uuid:
        raise changed(f"the table was replaced: expected the table with id {uuid}, found {found}", f"delta:{place}")
    with delta_errors(f"delta:{place}"):  # deltalake reads the log again
        return table.transaction_version(writer) or 0


def commit(place: str, planned: TableCommit, files: Sequence[NewFile]) -> None:
    """As `lake_append.commit_to_table`. If a commit that does not conflict with this one came first, deltalake tries
    again. If another program committed the same transaction or changed the schema, deltalake raises, and this function
    reads the table again."""
    name = planned.name
    check_store(place)
    for _ in attempts(name):
        table = open_to_commit(place, name)
        if number_of(table, place, planned.uuid, planned.writer) >= planned.number:
            return
        try:
            actions = _actions(table, place, name, files)
        except UsageError as error:
            raise changed(error.what, name) from None
        try:
            _commit(table, planned, actions)
        except CommitFailedError:
            continue
        except REFUSED as error:
            raise changed(f"deltalake refuses the commit ({words_of(error)})", name) from None
        except Exception as error:  # deltalake raises the errors of its parts as any kind, also after the commit
            last = partial(last_number, place, planned.uuid, planned.writer)
            if (failed := outcome(planned, last, error)) is not None:
                raise failed from error
        return


def check_commit(place: str, planned: TableCommit, files: Sequence[NewFile]) -> None:
    """As `lake_append.check_commit`."""
    _actions(open_to_commit(place, planned.name), place, planned.name, files)


def _actions(table: DeltaTable, place: str, name: str, files: Sequence[NewFile]) -> list[AddAction | RemoveAction]:
    """The entries as deltalake takes them."""
    return [
        AddAction(add["path"], add["size"], add["partitionValues"], add["modificationTime"], True, add["stats"])
        for add in new_entries(table, place, name, files)
    ]


def new_entries(table: DeltaTable, place: str, name: str, files: Sequence[NewFile]) -> list[dict[str, Any]]:
    """The members of the `add` action of each file, its path not yet escaped. UsageError for a table that is not
    written, TableChanged where the files are not those of the append, or do not fit the table."""
    check_files(storage_at(place).root, files, _fields(table, name))
    now = time.time_ns() // 1_000_000
    columns = list(table.metadata().partition_columns)
    kinds = {field["name"]: field["type"] for field in json.loads(table.schema().to_json())["fields"]}
    entries: list[dict[str, Any]] = []
    for file in files:
        texts = partition_values(file.partition)
        if list(texts) != columns:
            what = f"this new file is partitioned by {', '.join(texts) or 'nothing'}, the table by {', '.join(columns)}"
            raise changed(what, file.path)
        entries.append(
            {
                "path": file.path,
                "partitionValues": {column: _logged(text, kinds[column]) for column, text in texts.items()},
                "size": file.size,
                "modificationTime": now,
                "dataChange": True,
                "stats": json.dumps({"numRecords": file.rows}),
            }
        )
    return entries


def _commit(table: DeltaTable, planned: TableCommit, actions: list[AddAction | RemoveAction]) -> None:
    table.create_write_transaction(
        actions,
        mode="append",
        schema=table.schema(),
        partition_by=list(table.metadata().partition_columns),
        commit_properties=CommitProperties(
            custom_metadata={"gnomon.append": f"{planned.writer}/{planned.number}"},
            app_transactions=[Transaction(planned.writer, planned.number)],
        ),
    )


def _logged(text: str | None, kind: object) -> str | None:
    """The text of a partition value in Delta's log, where a timestamp without a zone has a space."""
    return text.replace("T", " ") if text is not None and kind == "timestamp_ntz" else text


@cache
def check_store(place: str) -> None:
    """UnsafeStore where a store lets a second writer replace a version of the log. Each place is checked once. A local
    disk needs no check."""
    storage = storage_at(place)
    if storage.is_remote:
        probe(storage)


def open_to_commit(place: str, name: str) -> DeltaTable:
    with delta_errors(name):
        return open_table(storage_at(place).root, to_commit=True)


def _fields(table: DeltaTable, name: str) -> pa.Schema:
    """The columns of new files. UsageError for a table with requirements that Gnomon does not check."""
    metadata, protocol = table.metadata(), table.protocol()
    unknown = sorted(set(protocol.writer_features or ()) - FEATURES)
    if unknown:
        refuse(f"its writers must know {', '.join(unknown)}", name)
    if (mode := metadata.configuration.get(f"{MAPPING}mode", "none")) != "none":
        refuse(f"it maps its columns to other names in files ({MAPPING}mode is {mode})", name)
    if EXPIRY in metadata.configuration:
        refuse(f"it forgets which appends it has, so that one could be committed twice ({EXPIRY} is set)", name)
    if rules := [key for key in metadata.configuration if key.startswith("delta.constraints.")]:
        refuse(f"it checks its rows, which is not done here ({', '.join(sorted(rules))})", name)
    fields = json.loads(table.schema().to_json())["fields"]
    for field in fields:
        _check_column(field, name)
    inside = [field for field in with_values(fields) if field["name"] not in metadata.partition_columns]
    kinds = [column_type(name, field["name"], field["type"], "none") for field in inside]
    return pa.schema(
        pa.field(field["name"], kind, field["nullable"]) for field, kind in zip(inside, kinds, strict=True)
    )


def _check_column(field: Mapping[str, Any], name: str) -> None:
    column, known = field["name"], field.get("metadata", {})
    for key, what in RULES.items():
        if key in known:
            refuse(f"{column} is {what}, and its rule is not checked here", name)
    if not isinstance(field["type"], str) and _has_required(field["type"]):
        refuse(f"{column} has a field or an item that must not be null, which is not checked here", name)


def _has_required(kind: Any) -> bool:
    """Whether a nested type has a part that must not be null."""
    if isinstance(kind, str):
        return False
    if isinstance(kind, list):
        return any(map(_has_required, kind))
    required = any(kind.get(member) is False for member in NOT_NULL)
    return required or any(_has_required(part) for part in kind.values() if isinstance(part, (dict, list)))
