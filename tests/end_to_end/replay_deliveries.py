"""The deliveries of an invented crawl, and the order in which they come."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow.parquet as pq

from tests.end_to_end.replay_targets import Row, as_table

HOURS = 24  # deliveries per day
FIRST_DAY = dt.date(2026, 3, 2)


@dataclass(frozen=True)
class Delivery:
    name: str
    folder: Path
    rows: list[Row]


def day(hour: int) -> str:
    return str(FIRST_DAY + dt.timedelta(days=hour // HOURS))


def foreign_url(number: int) -> str:
    """A key that another program may append, too."""
    return f"https://foreign/{number}"


def make_deliveries(random: Random, folder: Path, number: int, rows_each: int) -> list[Delivery]:
    """Make one delivery per hour: new keys, some of other days; keys of earlier hours; keys that come twice; nulls."""
    deliveries: list[Delivery] = []
    for hour in range(number):
        rows: list[Row] = []
        for i in range(random.randint(rows_each // 2, rows_each)):
            kind, payload, when = random.random(), f"{hour}:{i}", day(hour)
            if kind < 0.15 and deliveries:
                url, n, _, before = random.choice(random.choice(deliveries).rows)
                rows.append((url, n, payload, before if random.random() < 0.7 else when))
            elif kind < 0.23 and rows:
                url, n, _, before = random.choice(rows)
                rows.append((url, n, payload, before if random.random() < 0.7 else day(hour + HOURS)))
            elif kind < 0.27:
                url = random.choice([None, f"https://é/{hour % 5}"])
                rows.append((url, random.choice([None, hour % 7]), payload, when))
            elif kind < 0.29:
                rows.append((foreign_url(random.randrange(number)), 0, payload, when))
            else:
                late = random.choice([0] * 9 + [-1])  # a row of the previous day
                rows.append((f"https://é/{hour}/{i}", i % 3, payload, day(max(0, hour + late * HOURS))))
        random.shuffle(rows)
        delivery = Delivery(f"hour {hour:03d}", folder / f"{hour:03d}", rows)
        delivery.folder.mkdir(parents=True)
        cut = random.randrange(len(rows))
        for i, part in enumerate((rows[:cut], rows[cut:])):
            pq.write_table(as_table(part), delivery.folder / f"part-{i}.parquet")
        deliveries.append(delivery)
    return deliveries


def make_schedule(random: Random, deliveries: list[Delivery]) -> list[tuple[Delivery, str]]:
    """Deliveries and the ids of their batches, in the order in which they come: some late, some again under the same
    id, some again under another."""
    coming: list[tuple[float, Delivery, str]] = []
    for hour, delivery in enumerate(deliveries):
        coming.append((hour + (random.uniform(0, 6) if random.random() < 0.2 else 0), delivery, delivery.name))
        for name, share in ((delivery.name, 0.1), (f"{delivery.name}, again", 0.08)):
            if random.random() < share:
                coming.append((hour + random.uniform(0, 30), delivery, name))
    return [(delivery, name) for _, delivery, name in sorted(coming, key=lambda one: one[0])]
