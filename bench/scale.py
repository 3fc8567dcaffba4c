"""How much is measured: in full, or so little that a run takes two minutes and shows only that everything works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes and numbers of rounds."""

    is_quick: bool
    # Registered through the API, and so many copies of each in front of it (SQLite); made by PostgreSQL itself.
    registered: int
    copies: int
    rows_on_postgres: int
    rounds: int
    ones: int
    lists: int
    creates: int
    # The peer verifies in JavaScript: a tenth of the creates takes it as long.
    creates_of_peer: int
    intents: int
    logins: int
    uploads: int
    pgbench_seconds: int
    # The table between a thousand triggers and all of them.
    some_triggers: int
    # How many clients upload at once, each time to a process of its own.
    uploading_clients: tuple[int, ...]
    starts: int
    # Of the second load generator, which sends for a time.
    wrk_seconds: int
    # Of each part of a bar: a flood, or the same without it.
    bar_seconds: int
    bar_rounds: int

    @property
    def triggers(self) -> int:
        """All triggers in SQLite."""
        return self.registered * (self.copies + 1)


FULL = Scale(
    is_quick=False, registered=4_000, copies=249, rows_on_postgres=100_000, rounds=5, ones=12_000, lists=8_000,
    creates=4_000, creates_of_peer=500, intents=2_000, logins=1_500, uploads=300, pgbench_seconds=4,
    some_triggers=100_000, uploading_clients=(1, 16, 64), starts=7,
    wrk_seconds=2, bar_seconds=6, bar_rounds=3,
)  # fmt: skip
QUICK = Scale(
    is_quick=True, registered=1_000, copies=9, rows_on_postgres=5_000, rounds=2, ones=3_000, lists=2_000,
    creates=1_000, creates_of_peer=200, intents=500, logins=300, uploads=50, pgbench_seconds=2,
    some_triggers=5_000, uploading_clients=(64,), starts=3,
    wrk_seconds=1, bar_seconds=3, bar_rounds=1,
)  # fmt: skip
