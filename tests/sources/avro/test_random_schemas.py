"""Random schemas: values that fastavro wrote are read back, by scan and by pointer, all columns and some."""

from random import Random
from typing import Any

import pytest

from gnomon.shadow.values.row_values import python_values
from gnomon.sources.avro import open_avro
from tests.sources.avro_files import written
from tests.sources.readers import BytesReader
from tests.sources.source_contract import pointers_of

PLAIN = ("null", "boolean", "int", "long", "double", "bytes", "string")
NESTING = ("array", "map", "record", "union", "nullable", "nullable", "fixed", "enum", "again")


class Dice:
    """Random schemas and values. The branch of a union follows from its value."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._named: list[dict[str, Any]] = []

    def kind(self, depth: int) -> Any:
        chosen = self.random.choice(PLAIN if depth == 0 else PLAIN + NESTING)
        if chosen == "array":
            return {"type": "array", "items": self.kind(depth - 1)}
        if chosen == "map":
            return {"type": "map", "values": self.kind(depth - 1)}
        if chosen == "union":
            branches = ["null", "boolean", "long", "string", {"type": "array", "items": "long"}]
            return self.random.sample(branches, self.random.randrange(2, 5))
        if chosen == "nullable":
            inner = self.kind(depth - 1)
            both = ["null", inner]
            self.random.shuffle(both)
            return inner if inner == "null" or isinstance(inner, list) else both
        if chosen == "again":
            return self.random.choice(self._named)["name"] if self._named else "long"
        if chosen in ("record", "fixed", "enum"):
            return self._new(chosen, depth)
        return chosen

    def _new(self, chosen: str, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {"type": chosen, "symbols": ["a", "b"], "size": self.random.randrange(1, 5)}
        if chosen == "record":
            count = self.random.randrange(4)
            made["fields"] = [{"name": f"f{i}", "type": self.kind(depth - 1)} for i in range(count)]
        made["name"] = f"T{len(self._named)}"
        self._named.append(made)
        return made

    def value(self, kind: Any) -> Any:
        dice = self.random
        if isinstance(kind, list):
            return self.value(dice.choice(kind))
        if isinstance(kind, str) and kind not in PLAIN:
            kind = next(named for named in self._named if named["name"] == kind)
        if isinstance(kind, str):
            return {
                "null": lambda: None,
                "boolean": lambda: dice.random() < 0.5,
                "int": lambda: dice.randrange(-(2**31), 2**31),
                "long": lambda: dice.choice((0, -1, dice.randrange(-(2**63), 2**63))),
                "double": dice.random,
                "bytes": lambda: dice.randbytes(dice.choice((0, 3, 200))),
                "string": lambda: "é" * dice.choice((0, 2, 90)),
            }[kind]()
        return {
            "array": lambda: [self.value(kind["items"]) for _ in range(dice.choice((0, 1, 3)))],
            "map": lambda: {f"k{i}": self.value(kind["values"]) for i in range(dice.choice((0, 1, 2)))},
            "fixed": lambda: dice.randbytes(kind["size"]),
            "enum": lambda: dice.choice(kind["symbols"]),
            "record": lambda: {field["name"]: self.value(field["type"]) for field in kind["fields"]},
        }[kind["type"]]()


def rows_of(table: Any, names: list[str]) -> list[dict[str, Any]]:
    columns = [python_values(table[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("seed", range(60))
def test_rows_of_a_random_schema_come_back(seed: int) -> None:
    dice = Dice(seed)
    fields = [{"name": f"c{i}", "type": dice.kind(3)} for i in range(4)]
    schema = {"type": "record", "name": "Top", "fields": fields}
    rows = [dice.value(schema) for _ in range(dice.random.choice((1, 7, 40)))]
    reader = BytesReader(written(schema, rows, "null", dice.random.choice((1, 100, 5000))))
    source = open_avro(reader)
    names = source.schema.names
    batches = list(source.scan(reader, names))
    assert [row for batch in batches for row in rows_of(batch, names)] == rows
    pointers = pointers_of(batches)
    order = dice.random.sample(range(len(rows)), len(rows))
    some = dice.random.sample(names, 2)
    table = source.fetch(reader, [pointers[i] for i in order], some)
    table.validate(full=True)
    assert rows_of(table, some) == [{name: rows[i][name] for name in some} for i in order]
