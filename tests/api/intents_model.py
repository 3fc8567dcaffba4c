"""A plain Python model of GET /intents: the rows of both forms, and which of them a query asks for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from intents_world import CONFIG_SIGS, HOUR, SETTLERS, USERS, intent_body, operation_body, operations_body

from conftest import NOW_MS
from muniment.protocol.wire import UINT256_MAX

STATUSES = ("created", "enqueued", "discarded", "submitted", "succeeded", "failed", "expired")
NOW_S = NOW_MS // 1_000
# On both sides of now, of the settlement grace before it, and of the sizes of integers.
DEADLINES = (
    0, NOW_S - 2 * HOUR, NOW_S - HOUR - 1, NOW_S - HOUR, NOW_S - HOUR + 1, NOW_S - 1, NOW_S, NOW_S + 1,
    NOW_S + HOUR, 2**63 - 1, 2**63, 2**64, 2**128, 2**255, UINT256_MAX - 1, UINT256_MAX,
)  # fmt: skip


@dataclass
class Row:
    """What the model knows of an intent."""

    record: dict[str, Any]
    said: str
    created_ms: int

    @property
    def generation(self) -> str:
        return "2" if "operations" in self.record else "1"

    @property
    def operations(self) -> list[dict[str, Any]]:
        return self.record.get("operations", [])

    def has_user(self, user: str) -> bool:
        users = [self.record.get("user"), self.record.get("feePayer"), *(each["user"] for each in self.operations)]
        return user in users

    def has_op(self, op: int) -> bool:
        return op in [self.record.get("op"), *(each["opType"] for each in self.operations)]

    def status(self, now_ms: int) -> str:
        deadline_ms = int(self.record["deadline"]) * 1_000
        ends_ms = {"created": deadline_ms, "enqueued": deadline_ms, "submitted": deadline_ms + HOUR * 1_000}
        return "expired" if now_ms >= ends_ms.get(self.said, now_ms + 1) else self.said


@dataclass
class Shelf:
    """The recorded intents in the order in which they came."""

    rows: list[Row]

    def expected(self, query: dict[str, Any], now_ms: int) -> list[str]:
        """The hash of every intent that `query` asks for, apart from its paging, in the order that it asks for."""
        tests: dict[str, Callable[[Row, Any], bool]] = {
            "generation": lambda row, generation: generation in (row.generation, "all"),
            "user": Row.has_user,
            "settler": lambda row, settler: row.record["settler"] == settler,
            "configSig": lambda row, sig: sig in (row.record.get("configSig"), row.record.get("triggerSig")),
            "op": Row.has_op,
            "status": lambda row, status: row.status(now_ms) == status,
            "deadlineAfter": lambda row, after: int(row.record["deadline"]) > after,
            "deadlineBefore": lambda row, before: int(row.record["deadline"]) <= before,
            "createdAfter": lambda row, after: row.created_ms > after,
            "createdBefore": lambda row, before: row.created_ms <= before,
        }
        asked = [(tests[name], value) for name, value in {"generation": "1", **query}.items() if name in tests]
        found = [row.record["hash"] for row in self.rows if all(test(row, value) for test, value in asked)]
        return found if query.get("sort") == 1 else found[::-1]

    def draw(self, chance: random.Random) -> dict[str, Any]:
        """A value for each filter."""
        times = [row.created_ms for row in self.rows]
        return {
            "user": chance.choice(USERS),
            "settler": chance.choice(SETTLERS),
            "configSig": chance.choice(CONFIG_SIGS),
            "op": chance.randrange(4),
            "status": chance.choice(STATUSES),
            "deadlineAfter": max(chance.choice(DEADLINES) - chance.choice([0, 1]), 0),
            "deadlineBefore": min(chance.choice(DEADLINES) + chance.choice([0, 1]), UINT256_MAX),
            "createdAfter": chance.choice(times) - chance.choice([0, 1, 30 * 60_000]),
            "createdBefore": chance.choice(times) + chance.choice([-1, 0, 30 * 60_000]),
        }


def draw_generation(chance: random.Random) -> dict[str, str]:
    return chance.choice([{}, {"generation": "1"}, {"generation": "2"}, {"generation": "all"}])


FILTERS = (
    "user", "settler", "configSig", "op", "status", "deadlineAfter", "deadlineBefore", "createdAfter", "createdBefore",
)  # fmt: skip


def draw_body(chance: random.Random, number: int, said: str) -> dict[str, Any]:
    shared = {"settler": chance.choice(SETTLERS), "deadline": str(chance.choice(DEADLINES)), "status": said}
    signature, user = chance.choice(CONFIG_SIGS), chance.choice(USERS)
    if chance.random() < 0.5:
        return intent_body(number, user=user, configSig=signature, op=chance.randrange(4), **shared)
    operations = [
        operation_body(user=chance.choice(USERS), opType=chance.randrange(5)) for _ in range(chance.randint(1, 3))
    ]
    return operations_body(number, feePayer=user, triggerSig=signature, operations=operations, **shared)
