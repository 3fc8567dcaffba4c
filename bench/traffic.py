"""The three hot operations, sent in turns to servers that hold the same triggers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle, islice

from samples import SIGNERS, signed_triggers
from server import Load, Server, get, post

ONE, LIST, CREATE = "GET /triggers/{sig}", "GET /triggers?signer=…&limit=10", "POST /triggers"

# Operation to server to what each round has cost.
Loads = dict[str, dict[str, list[Load]]]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes and numbers of rounds."""

    is_quick: bool
    # Triggers that are registered through the API; copies of each in front of it on SQLite; rows that PostgreSQL makes.
    registered: int
    copies: int
    rows_on_postgres: int
    rounds: int
    ones: int
    lists: int
    creates: int
    # The peer verifies in JavaScript, so a tenth of the creates takes it as long.
    creates_of_peer: int
    # The size of the table between a thousand triggers and all of them.
    some_triggers: int

    @property
    def triggers(self) -> int:
        """All triggers in SQLite."""
        return self.registered * (self.copies + 1)


FULL = Scale(
    is_quick=False, registered=4_000, copies=249, rows_on_postgres=100_000, rounds=5, ones=12_000, lists=8_000,
    creates=4_000, creates_of_peer=500, some_triggers=100_000,
)  # fmt: skip
# Shows only that everything works.
QUICK = Scale(
    is_quick=True, registered=1_000, copies=9, rows_on_postgres=5_000, rounds=2, ones=3_000, lists=2_000,
    creates=1_000, creates_of_peer=200, some_triggers=5_000,
)  # fmt: skip


class Traffic:
    """Makes the requests: those that read are of registered triggers, those that create are new each time."""

    def __init__(self, scale: Scale, cid: str, seeded: list[bytes]) -> None:
        self._scale, self._cid = scale, cid
        self._ones = cycle([get(f"/triggers/{json.loads(body)['sig']}") for body in seeded])
        self._lists = cycle([get(f"/triggers?signer={signer}&limit=10") for signer in SIGNERS])
        self._numbers: Iterator[int] = iter(range(len(seeded) + 1, 10**9))

    def ones(self) -> list[bytes]:
        """Readings of one trigger."""
        return list(islice(self._ones, self._scale.ones))

    def lists(self) -> list[bytes]:
        """Readings of a signer's newest ten."""
        return list(islice(self._lists, self._scale.lists))

    def creates(self) -> list[bytes]:
        """Registrations of triggers that are nowhere yet."""
        numbers = islice(self._numbers, self._scale.creates)
        return [post("/triggers", body) for body in signed_triggers(numbers, self._cid)]

    def makers(self) -> dict[str, Callable[[], list[bytes]]]:
        """Operation to maker of a round's requests."""
        return {ONE: self.ones, LIST: self.lists, CREATE: self.creates}


def take_turns(servers: Mapping[str, Server], traffic: Traffic, scale: Scale) -> Loads:
    """Rounds of A B A B …; the first one warms up and is not counted."""
    loads: Loads = defaultdict(lambda: defaultdict(list))
    for number in range(scale.rounds + 1):
        for operation, make in traffic.makers().items():
            sent = make()
            for name, server in servers.items():
                count = scale.creates_of_peer if operation == CREATE and name.startswith("peer") else len(sent)
                load = server.load(sent[:count])
                if number:
                    loads[operation][name].append(load)
    return loads
