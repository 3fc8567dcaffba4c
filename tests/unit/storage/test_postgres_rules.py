"""The rules of the stores hold when two processes' worth of connections write the same things at the same moment."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from builders import Wallet
from muniment.protocol.errors import SignatureTaken, TriggerDeactivated, VersionTaken
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.service.resources.functions import store as functions
from muniment.service.resources.triggers import store as triggers
from muniment.service.storage.database import Transaction
from muniment.service.storage.postgres.engine import PostgresDatabase

SIGNER = Address(Wallet().address)


@pytest.fixture
async def two(postgres_url: str) -> AsyncIterator[itertools.cycle[PostgresDatabase]]:
    """Two databases in turn, each with connections of its own."""
    made = [PostgresDatabase(postgres_url) for _ in range(2)]
    yield itertools.cycle(made)
    for each in made:
        await each.close()


def signature(number: int) -> Signature:
    return Signature.parse(Wallet().sign_text(str(number)))


def trigger(number: int, *, digest: int | None = None, created_at_ms: int = 1) -> triggers.NewRow:
    sig, of = signature(number), number if digest is None else digest
    return triggers.NewRow(
        sig.raw, SIGNER.raw, of.to_bytes(32), bytes(32), "Mimic", 0, created_at_ms, lambda at: f'{{"{sig}": {at}}}'
    )  # fmt: skip


async def create(database: PostgresDatabase, new: triggers.NewRow) -> triggers.Kept:
    return await database.write(lambda tx: triggers.insert(tx, new))


async def test_a_hundred_equal_creates_are_one_record(two: itertools.cycle[PostgresDatabase]) -> None:
    kept = await asyncio.gather(*(create(next(two), trigger(1, created_at_ms=at)) for at in range(100)))
    assert len({each.record for each in kept}) == 1
    assert sum(each.is_new for each in kept) == 1
    assert await next(two).fetch("SELECT record FROM triggers") == [(kept[0].record,)]


async def test_one_consent_under_many_signatures_is_one_record(two: itertools.cycle[PostgresDatabase]) -> None:
    kept = await asyncio.gather(*(create(next(two), trigger(number, digest=7)) for number in range(50)))
    assert (len({each.record for each in kept}), sum(each.is_new for each in kept)) == (1, 1)


async def test_one_signature_is_taken_by_one_consent(two: itertools.cycle[PostgresDatabase]) -> None:
    new = trigger(1)
    creates = [
        create(next(two), triggers.NewRow(new.sig, SIGNER.raw, n.to_bytes(32), bytes(32), "Mimic", 0, 1, new.record))
        for n in range(40)
    ]
    outcomes = await asyncio.gather(*creates, return_exceptions=True)
    assert sum(isinstance(each, triggers.Kept) for each in outcomes) == 1
    assert sum(isinstance(each, SignatureTaken) for each in outcomes) == 39


async def test_a_row_is_never_dated_before_the_last_row(two: itertools.cycle[PostgresDatabase]) -> None:
    await create(next(two), trigger(1, created_at_ms=1_000))
    assert ": 1000}" in (await create(next(two), trigger(2, created_at_ms=5))).record


async def test_overlapping_lists_are_deactivated_in_any_order(two: itertools.cycle[PostgresDatabase]) -> None:
    sigs = [signature(number) for number in range(20)]
    await asyncio.gather(*(create(next(two), trigger(number)) for number in range(20)))
    done: list[Signature] = []

    def deactivating(listed: list[Signature]) -> Any:
        async def deactivate(transaction: Transaction) -> None:
            mine: list[Signature] = []
            for each in await triggers.fetch_listed(transaction, listed):
                if not each.deactivated:
                    await triggers.deactivate(transaction, each.sig, "{}", 1)
                    mine += [sig for sig in sigs if sig.raw == each.sig]
            done.extend(mine)

        return deactivate

    lists = [sigs, sigs[::-1], sigs[5:15], sigs[15:4:-1]] * 10
    await asyncio.gather(*(next(two).write(deactivating(listed)) for listed in lists))
    assert sorted(done) == sorted(sigs)  # each once
    with pytest.raises(TriggerDeactivated):
        await create(next(two), trigger(3))


async def test_a_version_is_taken_by_one_bundle(two: itertools.cycle[PostgresDatabase]) -> None:
    def deploying(number: int) -> Any:
        new = functions.NewFunction(number.to_bytes(32), number.to_bytes(32), {}, 1, f"record {number}")
        return lambda tx: functions.insert(tx, new, SIGNER, "Hello", "1.0.0")

    writes = [next(two).write(deploying(number)) for number in range(20) for _ in range(2)]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert len([each for each in outcomes if isinstance(each, str)]) == 2
    assert len([each for each in outcomes if isinstance(each, VersionTaken)]) == 38
    assert len(await next(two).fetch("SELECT 1 FROM functions")) == 1
