"""GET /triggers: every filter and their combinations, against a plain Python model of the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from trigger_world import check_refusal, next_of, walk

from answers import ok
from builders import Bundle, TriggerDraft, Wallet, cron, deploy, register
from conftest import Clock
from muniment.protocol.ipfs.cid import Cid, cid_v1
from muniment.service.context import Context
from muniment.service.resources.triggers.store import mark_ended

ROWS = 60
QUERIES = 60
WALLETS = (Wallet(11), Wallet(12), Wallet(13))
MINUTE = 60_000


@dataclass
class Row:
    """What the model knows of a trigger."""

    record: dict[str, Any]
    created_ms: int
    end_ms: int

    def is_active(self, now_ms: int) -> bool:
        return "deactivateSig" not in self.record and (self.end_ms == 0 or self.end_ms > now_ms)


@dataclass
class Shelf:
    """The registered triggers in the order in which they came."""

    rows: list[Row]
    cids: list[str]

    def expected(self, query: dict[str, Any], now_ms: int) -> list[dict[str, Any]]:
        """Every record that `query` asks for, apart from its paging, in the order that it asks for."""
        tests: dict[str, Callable[[Row, Any], bool]] = {
            "sigs": lambda row, sigs: row.record["sig"] in sigs.split(","),
            "functionCid": lambda row, cid: row.record["functionCid"] == cid,
            "signer": lambda row, signer: row.record["signer"] == signer,
            "active": lambda row, active: row.is_active(now_ms) is (active == "true"),
            "createdAfter": lambda row, after: row.created_ms > after,
            "createdBefore": lambda row, before: row.created_ms <= before,
        }
        asked = [(tests[name], value) for name, value in query.items() if name in tests]
        found = [row.record for row in self.rows if all(test(row, value) for test, value in asked)]
        return found if query.get("sort") == 1 else found[::-1]

    def draw(self, chance: random.Random) -> dict[str, Any]:
        """A query with each filter about as often there as not."""
        times = [row.created_ms for row in self.rows]
        some = chance.sample([row.record["sig"] for row in self.rows], 30)
        query: dict[str, Any] = {
            "sigs": ",".join([*some, "0x" + "1" * 128 + "1b"]),
            "functionCid": chance.choice(self.cids),
            "signer": chance.choice(WALLETS).address,
            "active": chance.choice(["true", "false"]),
            "createdAfter": chance.choice(times) - chance.choice([0, 1, 1, 30 * MINUTE]),
            "createdBefore": chance.choice(times) + chance.choice([-1, 0, 0, 30 * MINUTE]),
            "sort": chance.choice([1, -1]),
        }
        return {name: value for name, value in query.items() if chance.random() < (0.3 if name == "sigs" else 0.45)}


@pytest.fixture
async def shelf(client: httpx2.AsyncClient, clock: Clock) -> Shelf:
    """Signers × functions × deactivated × ended; some created in the same millisecond, some with the clock set back."""
    chance = random.Random(7)
    cids = [await deploy(client, Bundle(name=name)) for name in ("One", "Two")]
    rows: list[Row] = []
    created_ms = 0
    for number in range(ROWS):
        clock.now_ms += chance.choice([0, 1, MINUTE, -500])
        created_ms = max(created_ms, clock.now_ms)
        end_ms = chance.choice([0, clock.now_ms + 2, clock.now_ms + 10 * MINUTE, clock.now_ms + 10_000 * MINUTE])
        draft = TriggerDraft(
            chance.choice(cids), chance.choice(WALLETS), description=f"Number {number}", version=f"{number}.0.0",
            config=cron(endDate=end_ms),
        )  # fmt: skip
        rows.append(Row(await register(client, draft), created_ms, end_ms))
    for wallet in WALLETS:
        mine = [row for row in rows if row.record["signer"] == wallet.address and chance.random() < 0.4]
        sigs = [row.record["sig"] for row in mine]
        consent = {"triggerSigs": sigs, "signature": wallet.sign_deactivation(sigs)}
        assert (await client.post("/triggers/deactivate", json=consent)).status_code == 204
        for row in mine:
            row.record["deactivateSig"] = consent["signature"]
    clock.now_ms += 20 * MINUTE
    return Shelf(rows, cids)


async def test_every_combination_of_filters_answers_what_the_model_answers(
    client: httpx2.AsyncClient, context: Context, clock: Clock, shelf: Shelf
) -> None:
    now_ms = clock.now_ms
    chance = random.Random(8)
    for is_swept in (False, True):
        if is_swept:
            assert await context.database.write(lambda tx: mark_ended(tx, now_ms)) > 5
        seen = 0
        for _ in range(QUERIES):
            query = shelf.draw(chance)
            rows = shelf.expected(query, now_ms)
            seen += len(rows)
            offset, limit = chance.choice([0, 1, 5, 59, 60]), chance.choice([1, 3, 10, 100])
            page = ok(await client.get("/triggers", params={**query, "offset": offset, "limit": limit}))
            assert page.json() == rows[offset : offset + limit], (query, is_swept)
            target = f"/triggers?{urlencode({**query, 'limit': max(limit, 10)})}"
            assert await walk(client, target) == rows, (query, is_swept)
        assert seen > QUERIES  # the queries do not all answer nothing


async def test_defaults_are_ten_newest_first(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    made = [await register(client, TriggerDraft(cid, version=f"{number}.0.0")) for number in range(11)]
    response = ok(await client.get("/triggers"))
    assert response.json() == made[:0:-1]
    assert next_of(response) is not None


async def test_a_trigger_ends_with_the_millisecond_of_its_end_date(client: httpx2.AsyncClient, clock: Clock) -> None:
    cid = await deploy(client)
    end_ms = clock.now_ms + 5
    trigger = await register(client, TriggerDraft(cid, config=cron(endDate=end_ms)))
    assert trigger["endDate"] == end_ms
    for now_ms, active in ((end_ms - 1, [trigger]), (end_ms, []), (end_ms + 1, [])):
        clock.now_ms = now_ms
        assert ok(await client.get("/triggers?active=true")).json() == active
        assert ok(await client.get("/triggers?active=false")).json() == ([] if active else [trigger])


async def test_filters_know_every_spelling_of_a_value(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    trigger = await register(client, TriggerDraft(cid))
    sig, signer = trigger["sig"], trigger["signer"]
    lifted = sig[:130] + f"{int(sig[130:], 16) - 27:02x}"
    for query in (
        {"signer": signer.lower()},
        {"signer": "0x" + signer[2:].upper()},
        {"sigs": "0x" + sig[2:].upper()},
        {"sigs": lifted},
        {"sigs": f"{sig},{lifted}"},
        {"functionCid": cid},
        {"functionCid": str(cid_v1(0x70, Cid.parse(cid).digest))},
    ):
        assert ok(await client.get("/triggers", params=query)).json() == [trigger], query


async def test_a_hundred_signatures_are_taken(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    trigger = await register(client, TriggerDraft(cid))
    sigs = [f"0x{number:064x}{'1' * 64}1b" for number in range(1, 100)]
    response = ok(await client.get("/triggers", params={"sigs": ",".join([*sigs, trigger["sig"]])}))
    assert response.json() == [trigger]


SIG = "0x" + "1" * 128 + "1b"
REFUSED = {
    "101-sigs": ("sigs", ",".join([SIG] * 101), "invalid-parameter"),
    "3000-sigs": ("sigs", "," * 3000, "invalid-parameter"),
    "no-sigs": ("sigs", "", "invalid-signature"),
    "empty-sig": ("sigs", f"{SIG},,{SIG}", "invalid-signature"),
    "sig-after-a-space": ("sigs", f"{SIG}, {SIG}", "invalid-signature"),
    "one-bad-sig": ("sigs", f"{SIG},{SIG},0x12", "invalid-signature"),
    "high-s": ("sigs", "0x" + "1" * 64 + "f" * 64 + "1b", "invalid-signature"),
    "sql-sig": ("sigs", "' OR 1=1 --", "invalid-signature"),
    "sql-signer": ("signer", "0x' OR 1=1 --", "invalid-address"),
    "like-signer": ("signer", "0x" + "%" * 40, "invalid-address"),
    "wrong-checksum": ("signer", "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "invalid-address"),
    "no-signer": ("signer", "", "invalid-address"),
    "like-cid": ("functionCid", "Qm%", "invalid-cid"),
    "raw-cid": ("functionCid", str(cid_v1(0x55, bytes(32))), "invalid-cid"),
    "long-cid": ("functionCid", "Q" * 5000, "invalid-cid"),
    "active-maybe": ("active", "maybe", "invalid-parameter"),
    "active-1": ("active", "1", "invalid-parameter"),
    "active-True": ("active", "True", "invalid-parameter"),
    "active-empty": ("active", "", "invalid-parameter"),
    "after-negative": ("createdAfter", "-1", "invalid-parameter"),
    "after-2^60": ("createdAfter", str(2**60), "invalid-parameter"),
    "after-2^70": ("createdAfter", str(2**70), "invalid-parameter"),
    "after-a-date": ("createdAfter", "2026-11-20", "invalid-parameter"),
    "before-a-fraction": ("createdBefore", "1.5", "invalid-parameter"),
    "before-thousands-of-digits": ("createdBefore", "1" * 5000, "invalid-parameter"),
    "nul": ("signer", "\0", "invalid-address"),
}


@pytest.mark.one_engine
async def test_a_bad_filter_is_refused_by_name(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for row, (name, value, code) in REFUSED.items():
            with subtests.test(row):
                response = await client.get("/triggers", params={name: value})
                check_refusal(response, 400, code, parameter=name)


@pytest.mark.one_engine
async def test_the_bad_element_of_a_list_is_named(client: httpx2.AsyncClient) -> None:
    response = await client.get("/triggers", params={"sigs": f"{SIG},{SIG},0x12"})
    assert "element 3" in check_refusal(response, 400, "invalid-signature")["detail"]
