"""Many runs at once, by SQL: half of them of one trigger, most of one relayer, most without intents."""

from __future__ import annotations

from typing import Final, LiteralString

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.service.storage.database import Transaction

TRIGGERS: Final = 100
# Of each ten runs nine are of the first; of each thousand one is of the third.
RELAYERS: Final = tuple(Address.from_raw(bytes(19) + bytes([n])) for n in (1, 2, 3))
_RESULT: Final = (
    "CASE WHEN n % 1000 = 3 THEN 'skipped' WHEN n % 100 = 5 THEN 'stopped' WHEN n % 10 = 7 THEN 'intents' "
    "ELSE 'nothing' END"
)
_TRIGGER: Final = "CASE WHEN n % 2 = 0 THEN 1 ELSE 2 + (n / 2) % 99 END"
# A text of 32 digits as 32 bytes, and 20 bytes that are given as a parameter.
_BYTES: Final[dict[str, tuple[LiteralString, LiteralString]]] = {
    "sqlite": ("CAST(printf('%032d', n) AS BLOB)", "CAST(? AS BLOB)"),
    "postgres": ("CAST(lpad(CAST(n AS text), 32, '0') AS bytea)", "CAST(? AS bytea)"),
}
_RECORD: Final = '{"triggerSig":"0x' + "12" * 65 + '","timestamp":0,"engine":"' + "x" * 600 + '","logs":[]}'


def sig_of(number: int) -> Signature:
    """The signature of a trigger, from 1 to `TRIGGERS`; the first has half of the runs."""
    return Signature(f"0x{number:0128x}1b")


def time_of(number: int) -> int:
    """When a run arrived, in milliseconds since 1970."""
    return number * 1_000


async def fill(tx: Transaction, count: int) -> None:
    """Fill a migrated database without rows; its runs have no events."""
    await begin(tx)
    await add(tx, 1, count)
    await tx.execute("ANALYZE")


async def begin(tx: Transaction) -> None:
    """Add the triggers, and the operator of all runs."""
    if not tx.for_update:
        await tx.execute("DROP TRIGGER runs_recorded_event")
    await _without_events(tx)
    for n in range(1, TRIGGERS + 1):
        key = n.to_bytes(32)
        await tx.execute(
            """INSERT INTO triggers (seq, sig, signer, digest, function_digest, protocol, end_date_ms, created_at_ms,
                 record) VALUES (?, ?, ?, ?, ?, 'Mimic', 0, 0, '{}')""",
            (n, sig_of(n).raw, key[:20], key, key),
        )
    await tx.execute("INSERT INTO operators (name, key_hash, created_at_ms) VALUES ('o', ?, 0)", (bytes(32),))


async def add(tx: Transaction, first: int, last: int) -> None:
    """Add the runs from number `first` to `last`."""
    text, given = _BYTES["postgres" if tx.for_update else "sqlite"]
    await _without_events(tx)
    await tx.execute(
        f"""WITH RECURSIVE numbers (n) AS
              (SELECT CAST(? AS bigint) UNION ALL SELECT n + 1 FROM numbers WHERE n < CAST(? AS bigint))
            INSERT INTO runs (seq, hash, trigger_seq, trigger_type, payload_hash, result, verdict, relayer, outputs,
              min_validations, created_at_ms, record_bytes, record, more_logs, detail)
            SELECT n, {text}, {_TRIGGER}, 0, {text}, {_RESULT}, 1,
              CASE WHEN n % 1000 = 9 THEN {given} WHEN n % 10 = 1 THEN {given} ELSE {given} END, {text}, 1, n * 1000,
              800, CAST(? AS text), '', '' FROM numbers""",
        (first, last, *(each.raw for each in RELAYERS[::-1]), _RECORD),
    )
    await tx.execute(
        """INSERT INTO run_records (run_seq, n, operator, relayer, evidence, created_at_ms)
           SELECT seq, 1, 'o', relayer, hash, created_at_ms FROM runs WHERE seq >= ?""",
        (first,),
    )


async def _without_events(tx: Transaction) -> None:
    """Let PostgreSQL run no trigger of the database in this transaction."""
    if tx.for_update:
        await tx.execute("SET LOCAL session_replication_role = replica")
