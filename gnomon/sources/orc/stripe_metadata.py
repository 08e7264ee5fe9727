"""Reads the footers of stripes, and the row indexes of the requested columns, before rows are read. One round of reads
where the indexes are small, else two.
"""

from collections.abc import Mapping, Sequence

from gnomon.base.readers import RangeReader
from gnomon.sources.orc.errors import error_context
from gnomon.sources.orc.file_tail import Footer, StripePlace
from gnomon.sources.orc.schema import Type
from gnomon.sources.orc.stripe import ROW_INDEX, StripeMeta, layout, parse_row_index, parse_stripe_footer

INDEX_AT_ONCE = 1 << 20  # bytes of a stripe's indexes that are read together with its footer
ROUND = 16 << 20  # bytes of the indexes of all stripes that are read so


def row_group_count(stripe: StripePlace, footer: Footer) -> int:
    """The number of row groups in the row index of a stripe; 1 without an index."""
    return max(-(-stripe.rows // footer.stride), 1) if footer.stride else 1


def load_stripes(
    reader: RangeReader,
    footer: Footer,
    known: Mapping[int, StripeMeta],
    ordinals: Sequence[int],
    requested: Sequence[tuple[str, Type]],
) -> dict[int, StripeMeta]:
    """The metadata of the stripes, with the positions of the requested columns. `known` ones are not read again."""
    found = {ordinal: known[ordinal] for ordinal in ordinals if ordinal in known}
    unknown = [ordinal for ordinal in ordinals if ordinal not in known]
    places = {ordinal: footer.stripes[ordinal] for ordinal in ordinals}
    indexes = {
        ordinal: places[ordinal].index_length for ordinal in unknown if row_group_count(places[ordinal], footer) > 1
    }
    indexes = {ordinal: length for ordinal, length in indexes.items() if length <= INDEX_AT_ONCE}
    if sum(indexes.values()) > ROUND:
        indexes = {}
    ranges = [(places[ordinal].footer_offset, places[ordinal].footer_length) for ordinal in unknown]
    ranges += [(places[ordinal].offset, length) for ordinal, length in indexes.items()]
    parts = reader.read_ranges(ranges) if ranges else []
    for ordinal, part in zip(unknown, parts, strict=False):
        offset = places[ordinal].footer_offset
        with error_context(f"the footer of stripe {ordinal}", offset):
            found[ordinal] = parse_stripe_footer(part, places[ordinal], footer)
    held = dict(zip(indexes, parts[len(unknown) :], strict=True))
    _load_indexes(reader, footer, found, held, [tree for _, tree in requested])
    return found


def _load_indexes(
    reader: RangeReader,
    footer: Footer,
    metas: Mapping[int, StripeMeta],
    held: Mapping[int, bytes],
    requested: Sequence[Type],
) -> None:
    """Add the positions of the columns. `held`: the index of a stripe, from its first byte on."""
    missing: list[tuple[int, Type, int, int]] = []
    for ordinal, meta in metas.items():
        place = footer.stripes[ordinal]
        groups = row_group_count(place, footer)
        for tree in [each for top in requested for each in top.tree()] if groups > 1 else []:
            if tree.column in meta.positions or not layout(tree, meta, footer):
                continue
            offset, length = meta.streams.get((tree.column, ROW_INDEX), (place.offset, 0))
            begin = offset - place.offset
            if length == 0:
                meta.positions[tree.column] = None
            elif begin + length <= len(held.get(ordinal, b"")):
                packed = held[ordinal][begin : begin + length]
                meta.positions[tree.column] = parse_row_index(packed, tree, meta, footer, groups)
            else:
                missing.append((ordinal, tree, offset, length))
    parts = reader.read_ranges([(offset, length) for _, _, offset, length in missing]) if missing else []
    for (ordinal, tree, _, _), packed in zip(missing, parts, strict=True):
        groups = row_group_count(footer.stripes[ordinal], footer)
        metas[ordinal].positions[tree.column] = parse_row_index(packed, tree, metas[ordinal], footer, groups)
