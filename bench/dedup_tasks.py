"""The code of the tasks in the benchmark of appends. It is a separate module, so that a worker imports no more than it
needs."""

from collections.abc import Iterator

import pyarrow as pa

KEY = "url"
IS_OLD = "is_old"


def unseen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows whose key did not occur before; old rows come first."""
    seen: set[str] = set()
    for batch in batches:
        keys, is_old = batch[KEY].to_pylist(), batch[IS_OLD]
        if is_old.false_count == 0:
            seen.update(keys)
            continue
        rows = []
        for row, (key, old) in enumerate(zip(keys, is_old.to_pylist(), strict=True)):
            if key not in seen:
                seen.add(key)
                if not old:
                    rows.append(row)
        yield batch.drop_columns([IS_OLD]).take(pa.array(rows, pa.int64()))
