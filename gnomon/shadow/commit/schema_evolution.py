"""The columns of a source with their Arrow type names, merged over files that differ in them."""

from gnomon.shadow.commit.rebase import Changes, State
from gnomon.shadow.metadata import IndexSpec
from gnomon.sources.types import common_moments_named, parse_ddl

WIDENING = (("int8", "int16", "int32", "int64"), ("halffloat", "float", "double"))


def wider(before: str, now: str) -> str:
    """The type that holds the numbers of both, or the timestamps of both (`common_moments`); for other types the
    second one, unless that is the null type."""
    if now == "null":
        return before or now
    moments = common_moments_named(before, now)
    if moments is not None:
        return moments
    chain = next((chain for chain in WIDENING if before in chain and now in chain), (now,))
    return max(before, now, key=chain.index) if len(chain) > 1 else now


def columns_after(base: State, now: State, changes: Changes, spec: IndexSpec) -> dict[str, str]:
    """The source's columns: the known ones, and the new ones of the build. For formats whose files do not declare
    columns, `spec` has the types, which also hold the values that other programs found. A catalog table has the columns
    that it declares."""
    given = {field.name: str(field.type) for field in parse_ddl(spec.schema)}
    if spec.table:
        return given
    before = base.snapshot.columns if base.snapshot else {}
    columns = dict(now.snapshot.columns) if now.snapshot else {}
    for name, kind in changes.columns.items():
        if before.get(name) != kind:
            columns[name] = wider(columns.get(name, ""), kind)
    return {name: given.get(name, kind) for name, kind in columns.items()}
