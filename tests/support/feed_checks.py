"""Compare the events of a registry with its tables: replayed in order, events give the rows."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, LiteralString, Protocol

from muniment.service.resources.feed.events import Kind
from muniment.service.resources.runs.store import Record, standing_of
from muniment.service.storage.database import Parameters, Row


class Readable(Protocol):
    """What answers the statements of the checks: a `Database`, or a session of the tests."""

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        """All rows."""
        ...


async def check_events(database: Readable) -> int:
    """Assert that each change has its event, once and in order; returns the number of events. Needs all events."""
    rows = await database.fetch(
        "SELECT seq, at_ms, kind, subject, owners, origin, settler, facts FROM events ORDER BY seq"
    )
    by_kind = defaultdict[int, list[Row]](list)
    for row in rows:
        by_kind[row[2]].append(row)
    await _check_triggers(database, by_kind)
    await _check_functions(database, by_kind)
    of_intent = defaultdict[bytes, list[Row]](list)
    for row in rows:
        if row[2] in {Kind.INTENT_CREATED, Kind.INTENT_CHANGED, Kind.INTENT_LOGGED}:
            of_intent[row[3]].append(row)
    await _check_runs(database, by_kind[Kind.RUN_RECORDED])
    count = await _check_intents(database, of_intent)
    assert count == len(of_intent)
    return len(rows)


async def _check_triggers(database: Readable, by_kind: dict[int, list[Row]]) -> None:
    created, ended = by_kind[Kind.TRIGGER_CREATED], by_kind[Kind.TRIGGER_DEACTIVATED]
    triggers = await database.fetch(
        "SELECT sig, signer, function_digest, end_date_ms, deactivated, record FROM triggers ORDER BY seq"
    )
    assert [row[3] for row in created] == [row[0] for row in triggers]
    assert sorted(row[3] for row in ended) == sorted(row[0] for row in triggers if row[4])
    stored = {row[0]: row for row in triggers}
    first = {row[3]: row[0] for row in created}
    for seq, _, _, sig, owners, origin, _, facts in [*created, *ended]:
        _, signer, function_digest, end_date_ms, _, record = stored[sig]
        assert (owners, origin) == (signer, function_digest)
        if seq == first[sig]:
            assert json.loads(facts) == {"endDate": end_date_ms}
        else:
            assert seq > first[sig]
            assert json.loads(facts) == {"deactivateSig": json.loads(record)["deactivateSig"]}


async def _check_functions(database: Readable, by_kind: dict[int, list[Row]]) -> None:
    joined = await database.fetch(
        "SELECT f.digest, c.creator FROM function_creators c JOIN functions f ON f.seq = c.function_seq ORDER BY c.seq"
    )
    assert [(row[3], row[4]) for row in by_kind[Kind.FUNCTION_CREATED]] == joined


async def _check_intents(database: Readable, of_intent: dict[bytes, list[Row]]) -> int:
    """Assert that each intent has an event for each version, and that the last one has its present state."""
    intents = await database.fetch(
        "SELECT hash, COALESCE(chain_status, status), version, proposal_count, log_count, deadline, "
        "COALESCE(chain_transaction_hash, transaction_hash), settler, seq, user_address, trigger_sig, generation "
        "FROM intents"
    )
    for intent_hash, status, version, proposals, logs, deadline, transaction, settler, seq, user, *rest in intents:
        origin, generation = rest
        events = of_intent[intent_hash]
        facts: list[dict[str, Any]] = [json.loads(row[7]) for row in events]
        assert [each["version"] for each in facts] == list(range(1, version + 1)), events
        assert [row[2] == Kind.INTENT_CREATED for row in events] == [True, *[False] * (version - 1)]
        last = facts[-1]
        assert last["generation"] == generation
        assert (last["status"], last["proposals"], last["logs"]) == (status, proposals, logs)
        assert int(last["deadline"] or "0", 16) == int.from_bytes(deadline)
        assert last["transaction"].lower() == (transaction or b"").hex()
        users = [user] if user else await _users(database, seq)
        for row in events:
            owners = sorted(row[4][at : at + 20] for at in range(0, len(row[4]), 20))
            assert (owners, row[5], row[6]) == (users, origin, settler)
    return len(intents)


async def _check_runs(database: Readable, events: list[Row]) -> None:
    """Assert that each run has an event for each version, and that the last one has its present standing."""
    runs = await database.fetch(
        "SELECT r.seq, r.hash, r.version, r.verdict, r.min_validations, r.outputs, r.relayer, r.result, "
        "r.trigger_type, t.sig, t.signer FROM runs r JOIN triggers t ON t.seq = r.trigger_seq"
    )
    for seq, run_hash, version, verdict, min_validations, outputs, relayer, result, kind, sig, signer in runs:
        # Notes under the same hash, which a verdict removed, have events too.
        own = [row for row in events if row[3] == run_hash][-version:]
        assert len(own) == version
        assert all((row[4], row[5], row[6]) == (signer, sig, None) for row in own)
        records = [
            Record(*row)
            for row in await database.fetch(
                "SELECT operator, relayer, evidence, created_at_ms, orphaned_at_ms FROM run_records WHERE run_seq = ?",
                (seq,),
            )
        ]
        last = json.loads(own[-1][7])
        standing = standing_of(records, frozenset(), is_verdict=bool(verdict), min_validations=min_validations)
        assert {**last, "outputs": last["outputs"].lower(), "relayer": last["relayer"].lower()} == {
            "triggerType": kind, "result": result, "status": standing.status,
            "outputs": outputs.hex(), "relayer": relayer.hex(),
        }  # fmt: skip


async def _users(database: Readable, seq: int) -> list[bytes]:
    rows = await database.fetch("SELECT address FROM intent_users WHERE seq = ? ORDER BY address", (seq,))
    return [user for (user,) in rows]
