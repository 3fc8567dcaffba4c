"""GET /intents/{hash}: one intent whole, its ETag, and the effect of time on its status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from intents_world import HOUR, intent_body, log_body, proposal_body, record
from trigger_world import check_refusal

from conftest import NOW_MS, Clock
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.wire import iso_time
from muniment.service.context import Context
from muniment.service.resources.intents import store
from muniment.service.storage.sql import SWEPT_PER_BATCH

NOW_S = NOW_MS // 1_000
HASH = "0x" + "ab" * 32
MEMBERS = [
    "op", "user", "settler", "nonce", "deadline", "data", "maxFees", "events", "configSig", "minValidations", "hash",
    "createdAt", "executionHash", "status", "generation", "proposals", "logs",
]  # fmt: skip


async def test_every_member_is_there_and_hashes_once_they_are_known(
    client: httpx2.AsyncClient, context: Context
) -> None:
    body = intent_body(1, maxFees=[{"token": intent_body(0)["user"], "amount": "5"}])
    (name,) = await record(context, body)
    intent = (await client.get(f"/intents/{name}")).json()
    assert list(intent) == MEMBERS
    assert {key: intent[key] for key in body} == body
    computed = {"hash": name, "executionHash": "0x", "createdAt": iso_time(NOW_MS), "status": "created"}
    assert intent == {**body, **computed, "generation": 1, "proposals": [], "logs": []}
    hashes = {"transactionHash": "0x" + "01" * 32, "destTransactionHash": "0x" + "02" * 32}
    await record(context, {**body, **hashes})
    intent = (await client.get(f"/intents/{name}")).json()
    assert list(intent) == [*MEMBERS[:-3], *hashes, *MEMBERS[-3:]]
    assert {key: intent[key] for key in hashes} == hashes


async def test_any_letter_case_finds_it(client: httpx2.AsyncClient, context: Context) -> None:
    (name,) = await record(context, intent_body(1))
    for spelling in (name, "0x" + name[2:].upper()):
        assert (await client.get(f"/intents/{spelling}")).json()["hash"] == name


async def test_an_unknown_hash_is_not_found(client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]) -> None:
    async with nothing_stored():
        check_refusal(await client.get(f"/intents/{HASH}"), 404, "intent-not-found")


NO_HASHES = (
    "0x", "0xabcdef", "abc", "ab" * 32, HASH + "00", HASH[:-1] + "g", HASH + "%20", "%00", "%ff", "0X" + HASH[2:],
    "ab" * 30_000,
)  # fmt: skip


@pytest.mark.one_engine
async def test_a_malformed_hash_is_refused(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for name in NO_HASHES:
        with subtests.test(name[:20]):
            response = await client.get(f"/intents/{name}")
            assert response.status_code in ({400, 414} if len(name) > 1_000 else {400})
            assert response.json()["code"] in {"invalid-hex", "invalid-parameter", "uri-too-long"}


async def test_it_holds_all_proposals_and_logs(client: httpx2.AsyncClient, context: Context) -> None:
    proposals, logs = [proposal_body(n) for n in range(300)], [log_body(n) for n in range(1_200)]
    for number, (some, lines) in enumerate([(1, 0), (0, 1), (50, 51), (100, 500), (101, 501), (300, 1_200)]):
        (name,) = await record(context, intent_body(number, proposals=proposals[:some], logs=logs[:lines]))
        intent = (await client.get(f"/intents/{name}")).json()
        assert list(intent) == MEMBERS
        assert [each["data"] for each in intent["proposals"]] == [each["data"] for each in proposals[:some]]
        assert [each["data"] for each in intent["logs"]] == [each["data"] for each in logs[:lines]]


async def test_a_large_intent_is_read_in_pieces_as_it_was_when_it_was_asked_for(context: Context) -> None:
    proposals = [proposal_body(n, fees=["1"] * 200) for n in range(400)]
    body = intent_body(1, proposals=proposals, logs=[log_body(n) for n in range(1_950)])
    (name,) = await record(context, body)
    head = await store.find(context.database, bytes.fromhex(name[2:]), Moment(NOW_MS, HOUR))
    assert not head.is_small
    pieces = [piece async for piece in store.pieces(context.database, head)]
    assert max(map(len, pieces)) < sum(map(len, pieces)) / 4
    reading = store.pieces(context.database, head)
    again = [await anext(reading)]
    await record(context, {**body, "logs": [log_body(n) for n in range(1_950, 2_100)]})
    again += [piece async for piece in reading]
    assert again == pieces


async def test_its_etag_saves_reading_it_again_until_anything_changes(
    client: httpx2.AsyncClient, context: Context
) -> None:
    body = intent_body(1)
    (name,) = await record(context, body)
    seen: list[str] = []
    changes: list[dict[str, Any]] = [
        {}, {"proposals": [proposal_body(1)]}, {"logs": [log_body(1)]}, {"status": "enqueued"},
        {"transactionHash": HASH},
    ]  # fmt: skip
    for change in changes:
        await record(context, {**body, **change})
        response = await client.get(f"/intents/{name}")
        etag = response.headers["etag"]
        assert etag.startswith(f'"{name[2:34]}-')
        assert etag not in seen
        for tag in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            again = await client.get(f"/intents/{name}", headers={"if-none-match": tag})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        for tag in seen:
            assert (await client.get(f"/intents/{name}", headers={"if-none-match": tag})).status_code == 200
        seen.append(etag)
    await record(context, {**body, **changes[1]})
    assert (await client.get(f"/intents/{name}")).headers["etag"] == seen[-1]  # said before: nothing has changed


async def test_head_answers_the_same_without_the_body(client: httpx2.AsyncClient, context: Context) -> None:
    small, large = await record(context, intent_body(1), intent_body(2, logs=[log_body(n) for n in range(501)]))
    for name in (small, large):
        got, head = await client.get(f"/intents/{name}"), await client.head(f"/intents/{name}")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["etag"] == got.headers["etag"]
        assert head.headers.get("content-length") == got.headers.get("content-length")


FINAL = ("discarded", "succeeded", "failed")


@pytest.mark.parametrize(
    ("status", "ends_s"), [("created", 0), ("enqueued", 0), ("submitted", HOUR), *((each, None) for each in FINAL)]
)
@pytest.mark.parametrize("is_swept", [False, True], ids=["before-the-sweep", "after-the-sweep"])
async def test_an_intent_expires_with_the_second_of_its_end(
    client: httpx2.AsyncClient, context: Context, clock: Clock, status: str, ends_s: int | None, *, is_swept: bool
) -> None:
    deadline = NOW_S + 10
    (name,) = await record(context, intent_body(1, deadline=str(deadline), status=status))
    first = (await client.get(f"/intents/{name}")).headers["etag"]
    end_ms = (deadline + (HOUR if ends_s is None else ends_s)) * 1_000
    for now_ms, reads_as in (
        (end_ms - 1, status),
        (end_ms, "expired"),
        (end_ms + 1, "expired"),
        (2 * end_ms, "expired"),
    ):
        clock.now_ms = now_ms
        if is_swept:
            count = await sweep(context, clock.now_ms)
            assert count == (now_ms == end_ms and ends_s is not None)
        expected = status if ends_s is None else reads_as
        response = await client.get(f"/intents/{name}", headers={"if-none-match": first})
        assert response.status_code == (304 if expected == status else 200)
        intent = (await client.get(f"/intents/{name}")).json()
        assert intent["status"] == expected
        assert (await client.get(f"/intents?status={expected}")).json() == [intent]
        other = status if expected == "expired" else "expired"
        assert (await client.get(f"/intents?status={other}")).json() == []


async def test_a_sweep_changes_no_answer(client: httpx2.AsyncClient, context: Context, clock: Clock) -> None:
    (name,) = await record(context, intent_body(1, deadline=str(NOW_S + 1)))
    clock.advance(seconds=2)
    before = await client.get(f"/intents/{name}")
    assert await sweep(context, clock.now_ms) == 1
    after = await client.get(f"/intents/{name}")
    assert (after.content, after.headers["etag"]) == (before.content, before.headers["etag"])
    assert before.json()["status"] == "expired"


@pytest.mark.parametrize("status", ["created", "enqueued", "submitted"])
@pytest.mark.parametrize(("ahead_s", "grace_s"), [(2 * HOUR, HOUR), (11, 0)], ids=["a-clock-ahead", "a-shorter-grace"])
async def test_a_sweep_under_another_clock_or_grace_lets_no_intent_expire(
    client: httpx2.AsyncClient, context: Context, clock: Clock, status: str, ahead_s: int, grace_s: int
) -> None:
    (name,) = await record(context, intent_body(1, deadline=str(NOW_S + 10), status=status))
    before = await client.get(f"/intents/{name}")
    assert await sweep(context, NOW_MS + ahead_s * 1_000, grace_s) == 1
    assert await standings(context) == ["expired"]

    async def assert_not_expired() -> None:
        after = await client.get(f"/intents/{name}")
        assert (after.json()["status"], after.headers["etag"]) == (status, before.headers["etag"])
        assert (await client.get(f"/intents?status={status}")).json() == [after.json()]
        assert (await client.get("/intents?status=expired")).json() == []

    await assert_not_expired()
    counts = [await sweep(context, clock.now_ms) for _ in range(2)]
    assert counts == [1, 0]
    assert await standings(context) == [status]
    await assert_not_expired()


async def test_a_sweep_unmarks_a_bounded_number(context: Context) -> None:
    bodies = [intent_body(n, status=status) for n, status in enumerate(["created", "submitted", "enqueued"] * 2)]
    await record(context, *({**body, "deadline": str(NOW_S + 1)} for body in bodies))
    assert await sweep(context, NOW_MS + 1_000, 0) == 6
    counts = [await sweep(context, NOW_MS, count=4) for _ in range(3)]
    assert counts == [4, 2, 0]
    assert await standings(context) == ["created", "submitted", "enqueued"] * 2


async def sweep(context: Context, now_ms: int, grace_s: int = HOUR, *, count: int = SWEPT_PER_BATCH) -> int:
    """Sweep at a time; the number of intents that this marked or unmarked."""
    return await context.database.write(lambda tx: store.mark_expired(tx, Moment(now_ms, grace_s), count))


async def standings(context: Context) -> list[str]:
    """The column that indexes are made of, in the order of commits."""
    return [standing for (standing,) in await context.database.fetch("SELECT standing FROM intents ORDER BY seq")]


async def test_a_sweep_marks_a_bounded_number(client: httpx2.AsyncClient, context: Context, clock: Clock) -> None:
    await record(context, *(intent_body(number, deadline=str(NOW_S + 1)) for number in range(5)))
    clock.advance(seconds=2)
    counts = [await sweep(context, clock.now_ms, count=2) for _ in range(4)]
    assert counts == [2, 2, 1, 0]
    assert len((await client.get("/intents?status=expired")).json()) == 5


async def test_before_the_first_hour_of_1970_no_grace_is_over(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    clock.now_ms = 5_000
    await record(context, *(intent_body(n, deadline=str(n), status="submitted") for n in (0, 1)))
    assert len((await client.get("/intents?status=submitted")).json()) == 2
    assert (await client.get("/intents?status=expired")).json() == []
