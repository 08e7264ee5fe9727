"""Values of each key type, with those at the ends of their order."""

import datetime as dt
import decimal
import math
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

DAY = dt.date(2026, 1, 1)
FLOATS = [math.nan, math.inf, 0.0, 1.5, -2.5, 3.25]
TEXTS = ["", "a", "ab", "é", "\U0001f600", "\uffff", "a\0"]
VALUES: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "tinyint": (pa.int8(), lambda chance: chance.choice([-128, 127, *range(-9, 9)])),
    "bigint": (pa.int64(), lambda chance: chance.choice([-(2**63), 2**63 - 1, *range(-50, 50)])),
    "boolean": (pa.bool_(), lambda chance: chance.random() < 0.5),
    "double": (
        pa.float64(),
        lambda chance: chance.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-300, 1.5, -2.5]),
    ),
    "float": (pa.float32(), lambda chance: chance.choice([math.nan, math.inf, 0.0, 1.5, -2.5, 3.25])),
    "decimal": (pa.decimal128(9, 2), lambda chance: decimal.Decimal(chance.randrange(-500, 500)) / 100),
    "date": (pa.date32(), lambda chance: DAY + dt.timedelta(chance.randrange(40))),
    "timestamp": (pa.timestamp("us"), lambda chance: dt.datetime(2026, 1, 1, 0, 0, chance.randrange(50))),
    "string": (
        pa.string(),
        lambda chance: chance.choice(["", "a", "ab", "é", "\U0001f600", "\uffff", "a\0"]) + str(chance.randrange(9)),
    ),
    "binary": (pa.binary(), lambda chance: bytes(chance.choice([0, 1, 127, 255]) for _ in range(chance.randrange(4)))),
}
