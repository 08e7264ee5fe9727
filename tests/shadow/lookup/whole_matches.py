"""The matches of many keys at once, in the order of `Index.find`, as tests compare them."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from gnomon.shadow import OpenIndex
from gnomon.shadow.lookup.batch import Matches, MatchStats


def all_matches(
    index: OpenIndex, keys: pa.RecordBatch, within: Mapping[str, pa.Array], stats: MatchStats, null_safe: bool = False
) -> Matches:
    """`Index.match_pieces` in one piece, by key, and in a flat index then by partition."""
    pieces = list(index.match_pieces(keys, within, stats, null_safe))
    if not pieces:
        return Matches(pa.array([], pa.int64()), pa.RecordBatch.from_pylist([]))
    rows = np.concatenate([piece.rows.to_numpy() for piece in pieces])
    entries = pa.concat_batches([piece.entries for piece in pieces])
    places = {partition: i for i, partition in enumerate(index.view.partitions)}
    names = entries.column("data_filename").to_pylist() if index.spec.flat else []
    order = [places[index.view.covered[name].partition] for name in names] or np.zeros(len(rows))
    turn = pa.array(np.lexsort((order, rows)))
    return Matches(pa.array(rows).take(turn), entries.take(turn))
