"""`_shadow/spec.json`: the spec of the first build, for people who look into the folder. Each snapshot holds its own
spec, so that a lost file can be written again."""

from contextlib import suppress
from dataclasses import replace

from gnomon.base.actions import Action
from gnomon.shadow.errors import AlreadyExists, DamagedMetadata, IndexNotFound, SpecMismatch
from gnomon.shadow.metadata import json_files
from gnomon.shadow.metadata.snapshots import SPEC_PATH, newest_snapshot, snapshot_numbers
from gnomon.shadow.metadata.spec import IndexSpec, check_same, parse_spec
from gnomon.shadow.storage import Storage, probe


def read_spec(storage: Storage) -> IndexSpec:
    """The first build's spec, from the file. IndexNotFound, NewerFormat or DamagedMetadata where it cannot be read."""
    where = f"{storage.root}/{SPEC_PATH}"
    try:
        content = json_files.read(storage, SPEC_PATH)
    except (FileNotFoundError, NotADirectoryError):
        if snapshot_numbers(storage):
            raise DamagedMetadata("missing, though there are snapshots", where, action=Action.BUILD_SPEC) from None
        raise IndexNotFound(
            f"not an index ({SPEC_PATH} is not there)", storage.root, action=Action.BUILD_FIRST
        ) from None
    return parse_spec(content, where)


def create_spec(storage: Storage, spec: IndexSpec) -> None:
    """Write the spec, create-only. An earlier build that did not finish may have written the same spec. `page_maps` may
    differ, since each snapshot has its own."""
    try:
        storage.put_new(SPEC_PATH, [json_files.encode(spec.to_json())])
    except AlreadyExists:
        check_same(replace(read_spec(storage), page_maps=spec.page_maps), spec, storage.root)


def create_first_spec(storage: Storage, spec: IndexSpec) -> None:
    """Write the spec before the first commit. It replaces the spec of a build that never committed.

    If two first builds with different specs race, each looks for the other's commit after it wrote its spec, and puts
    that commit's spec back. If it dies before, the next build does it (`put_back`)."""
    try:
        create_spec(storage, spec)
    except SpecMismatch:
        if snapshot_numbers(storage):
            raise
        _replace(storage, spec)
        committed = newest_snapshot(storage)
        if committed is not None:
            put_back(storage, committed.spec)
            raise


def put_back(storage: Storage, spec: IndexSpec) -> None:
    """Write the spec of the newest snapshot into the file, where it is missing, damaged or from another build."""
    with suppress(DamagedMetadata):
        if read_spec(storage).is_like(spec):
            return
    probe(storage)
    _replace(storage, spec)


def _replace(storage: Storage, spec: IndexSpec) -> None:
    storage.delete(SPEC_PATH)
    create_spec(storage, spec)
