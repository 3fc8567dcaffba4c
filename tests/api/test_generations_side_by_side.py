"""Processes of the release before, which know the first generation alone, beside processes of this release.

Their statements are written here as they were: they name `intents`, `intent_proposals` and `intent_logs` only.
"""

from __future__ import annotations

from typing import Any, LiteralString

import httpx2
import pytest
from intents_world import intent_body, log_body, operations_body, proposal_body, record

from muniment.context import Context
from muniment.storage.database import Row, Transaction
from operator_client import operations_proposal

INSERT = """INSERT INTO intents
     (hash, user_address, settler, config_sig, op, deadline, status, transaction_hash, dest_transaction_hash,
      standing, proposal_count, log_count, created_at_ms, record)
   VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (hash) DO NOTHING RETURNING seq"""
LISTED = """SELECT i.seq, i.hash, i.record FROM (SELECT seq FROM intents ORDER BY seq DESC LIMIT 11 OFFSET 0) page
   JOIN intents i ON i.seq = page.seq ORDER BY i.seq DESC"""
FOUND = "SELECT i.seq FROM intents i WHERE i.hash = ?"
SWEPT = "UPDATE intents SET standing = 'expired' WHERE standing IN ('created', 'enqueued', 'submitted')"
COUNTED = ("SELECT count(*) FROM intents", "SELECT count(*) FROM intent_proposals", "SELECT count(*) FROM intent_logs")


async def insert_as_before(context: Context, number: int) -> int:
    values: tuple[object, ...] = (
        (number + 1_000).to_bytes(32), bytes(20), bytes(20), bytes(65), 1, (2**40).to_bytes(32), "created", None, None,
        "created", 0, 0, context.now_ms(), f'{{"hash":"0x{number + 1_000:064x}"}}',
    )  # fmt: skip

    async def insert(tx: Transaction) -> int:
        ((seq,),) = await tx.fetch(INSERT, values)
        return seq

    return await context.database.write(insert)


async def of_both(context: Context) -> list[str]:
    """Intents of both forms with proposals and logs; the hashes of those of the second form."""
    await record(context, *(intent_body(n, proposals=[proposal_body(n)], logs=[log_body(n)]) for n in range(3)))
    operations: list[dict[str, Any]] = [operations_body(1)["operations"][0]] * 2
    return await record(
        context,
        *(
            operations_body(n, operations=operations, proposals=[operations_proposal(n)], logs=[log_body(n)])
            for n in range(4)
        ),
    )


async def test_rows_of_both_releases_are_numbered_in_the_order_of_commits(
    client: httpx2.AsyncClient, context: Context
) -> None:
    expected: list[str] = []
    for n in range(4):
        await insert_as_before(context, n)
        expected.append(f"0x{n + 1_000:064x}")
        expected += await record(context, operations_body(n), operations_body(n + 10))
        expected += await record(context, intent_body(n))
    listed = (await client.get("/intents?generation=all&sort=1&limit=100")).json()
    assert [each["hash"] for each in listed] == expected
    numbers = await context.database.fetch("SELECT seq FROM intents UNION ALL SELECT seq FROM intents_2")
    assert len(set(numbers)) == len(expected)


async def test_the_statements_of_the_release_before_meet_nothing_of_the_second_form(context: Context) -> None:
    second = await of_both(context)

    async def fetch(sql: LiteralString, *values: object) -> list[Row]:
        return await context.database.fetch(sql, values)

    assert len(await fetch(LISTED)) == 3
    assert [await fetch(FOUND, bytes.fromhex(each[2:])) for each in second] == [[]] * 4
    assert [(await fetch(sql))[0][0] for sql in COUNTED] == [3, 3, 3]
    assert await context.database.write(lambda tx: tx.execute(SWEPT)) == 3
    assert await fetch("SELECT DISTINCT standing FROM intents_2") == [("created",)]


@pytest.mark.parametrize("generation", ["1", "2", "all"])
async def test_a_cursor_of_one_listing_fits_every_other(
    client: httpx2.AsyncClient, context: Context, generation: str
) -> None:
    await of_both(context)
    await record(context, intent_body(9))
    rows = (await client.get("/intents?generation=all&sort=1&limit=100")).json()
    shown = [each for each in rows if generation in ("all", str(each["generation"]))]
    for count in range(1, len(rows) + 1):
        first = await client.get(f"/intents?generation=all&sort=1&limit={count}")
        cursor = first.headers["link"].partition("cursor=")[2].partition("&")[0].partition(">")[0]
        rest = (await client.get(f"/intents?generation={generation}&sort=1&limit=100&cursor={cursor}")).json()
        assert rest == [each for each in rows[count:] if each in shown], count
