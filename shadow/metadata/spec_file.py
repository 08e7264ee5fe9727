"""`_shadow/spec.json`: the spec of the first build, for people who look into the folder. Each snapshot holds the spec
of its time, so that a lost file can be written again."""

from contextlib import suppress
from dataclasses import replace

from gnomon.base.actions import Action
from gnomon.shadow.errors import AlreadyExists, DamagedMetadata, IndexNotFound, SpecMismatch
from gnomon.shadow.metadata import json_files
from gnomon.shadow.metadata.snapshots import newest_snapshot, snapshot_numbers
from gnomon.shadow.metadata.spec import IndexSpec, check_same, parse_spec
from gnomon.shadow.storage import Storage, probe

SPEC_PATH = "_shadow/spec.json"


def read_spec(storage: Storage) -> IndexSpec:
    """The spec in the file, which is the first build's. IndexNotFound, NewerFormat or DamagedMetadata otherwise."""
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
    """Write the spec, create-only. The same spec may be there already (an earlier build that got no further); whether
    page maps are recorded is each snapshot's own."""
    try:
        storage.put_new(SPEC_PATH, [json_files.encode(spec.to_json())])
    except AlreadyExists:
        check_same(replace(read_spec(storage), page_maps=spec.page_maps), spec, storage.root)


def create_first_spec(storage: Storage, spec: IndexSpec) -> None:
    """Write the spec before the first commit. One left by a build that never committed counts for nothing.

    Of two first builds of different specs at once, each looks for the other's commit after it wrote its spec, and puts
    back what that commit holds; where it is killed before it does, the next build does it (`put_back`)."""
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
    """Make the file hold the spec of the newest snapshot, where it is missing, damaged or another's."""
    with suppress(DamagedMetadata):
        if read_spec(storage).is_like(spec):
            return
    probe(storage)
    _replace(storage, spec)


def _replace(storage: Storage, spec: IndexSpec) -> None:
    storage.delete(SPEC_PATH)
    create_spec(storage, spec)
