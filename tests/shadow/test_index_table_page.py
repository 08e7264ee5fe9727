"""The examples in docs/internals/index-format.md equal written files."""

import json
import re
from pathlib import Path

from gnomon.shadow.metadata.snapshots import SPEC_PATH, read_snapshot, read_spec, snapshot_path
from gnomon.shadow.storage import storage_at

PAGE = Path(__file__).parents[2] / "docs/internals/index-format.md"


def test_the_examples_are_files_that_are_read_and_belong_together(tmp_path: Path) -> None:
    spec_example, snapshot_example = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    storage = storage_at(str(tmp_path))
    storage.put_new(SPEC_PATH, [spec_example.encode()])
    storage.put_new(snapshot_path(2), [snapshot_example.encode()])
    spec, snapshot = read_spec(storage), read_snapshot(storage, 2)
    assert spec.to_json() == {k: v for k, v in json.loads(spec_example).items() if k != "crc32"}
    assert snapshot.to_json() == {k: v for k, v in json.loads(snapshot_example).items() if k != "crc32"}
    assert snapshot.spec == spec
