"""Cursors of listings, and the epoch that they are good in."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable
from typing import Any, LiteralString

import httpx2
import pytest
from trigger_world import check_refusal, next_of

from answers import cursor_at, ok
from builders import Bundle, TriggerDraft, Wallet, deploy, register
from muniment.service.context import Context
from muniment.service.http.paging import OFFSET_MAX, Cursor
from muniment.service.storage import epoch
from muniment.service.storage.database import Parameters, Row
from muniment.service.storage.epoch import FRESH_SECONDS, Epochs
from operator_client import IntentDraft, OperatorClient, operator_key

NUMBER = 0x0BADCAFE
CREATOR = Wallet(5)
PATHS = ["/triggers", "/functions", f"/functions?creator={CREATOR.address}", "/intents"]
TABLES = dict(zip(PATHS, ("triggers", "functions", "function_creators", "intents"), strict=True))
EITHER_WAY = [(path, sort) for path in PATHS for sort in (1, -1)]


@pytest.fixture
async def filled(client: httpx2.AsyncClient, context: Context) -> None:
    """Three rows in each listing."""
    cids = [await deploy(client, Bundle(f"F{number}"), CREATOR) for number in range(3)]
    for cid in cids:
        await register(client, TriggerDraft(cid))
    operator = OperatorClient(client, await operator_key(context))
    for number in range(3):
        await operator.recorded(IntentDraft(number))


async def renew(context: Context, number: int = NUMBER) -> None:
    await context.database.write(lambda tx: epoch.renew(tx, number))


def knows_anew(context: Context) -> None:
    """What this process knows of the epoch has become old."""
    context.epochs._until = float("-inf")


def on(path: str, **query: object) -> str:
    return path + ("&" if "?" in path else "?") + "&".join(f"{name}={value}" for name, value in query.items())


async def first_link(client: httpx2.AsyncClient, path: str, sort: int) -> str:
    link = next_of(await client.get(on(path, sort=sort, limit=2)))
    assert link
    return link


def plain(link: str) -> str:
    """What a cursor is made of."""
    cursor = link.rpartition("cursor=")[2]
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()


@pytest.mark.usefixtures("filled")
async def test_in_the_first_epoch_cursors_name_their_listing_and_no_epoch(
    client: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path, sort in EITHER_WAY:
        with subtests.test(path, sort=sort):
            link = await first_link(client, path, sort)
            kind, _, seq = plain(link).partition("-")
            assert kind == "tfci"[PATHS.index(path)]
            assert seq.isdecimal()
            assert len(ok(await client.get(link)).json()) == 1


@pytest.mark.usefixtures("filled")
async def test_a_cursor_of_an_earlier_epoch_is_refused_and_the_answer_says_how_to_begin_again(
    client: httpx2.AsyncClient, context: Context, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    links = {each: [await first_link(client, *each)] for each in EITHER_WAY}
    for number in (NUMBER, NUMBER + 1):
        await renew(context, number)
        knows_anew(context)
        async with nothing_stored():
            for (path, sort), given in links.items():
                with subtests.test(path, sort=sort, number=number):
                    for link in given:
                        problem = check_refusal(await client.get(link), 410, "cursor-too-old", parameter="cursor")
                        assert "begin again without cursor" in problem["detail"]
                    given.append(await first_link(client, path, sort))
                    assert plain(given[-1]).endswith(f"-{number:08x}")
                    assert len(ok(await client.get(given[-1])).json()) == 1
    assert {(await client.get(link)).status_code for given in links.values() for link in given[:-1]} == {410}


@pytest.mark.usefixtures("filled")
async def test_a_cursor_after_the_last_row_is_refused(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for path, sort in EITHER_WAY:
        with subtests.test(path, sort=sort):
            newest = await client.get(on(path, sort=1, limit=3))
            highest = Cursor(str(next_of(newest)).rpartition("cursor=")[2]).seq
            at_the_end = await client.get(on(path, sort=sort, cursor=cursor_at(TABLES[path], highest)))
            assert at_the_end.status_code == 200
            for seq in (highest + 1, OFFSET_MAX):
                response = await client.get(on(path, sort=sort, cursor=cursor_at(TABLES[path], seq)))
                check_refusal(response, 410, "cursor-too-old", parameter="cursor")


@pytest.mark.one_engine
@pytest.mark.usefixtures("filled")
async def test_a_cursor_of_another_listing_is_refused(
    client: httpx2.AsyncClient, context: Context, subtests: pytest.Subtests
) -> None:
    """The number of a row of one table says nothing about another: a reader would miss rows."""
    for is_renewed in (False, True):
        if is_renewed:
            await renew(context)
            knows_anew(context)
        for path, other in itertools.product(PATHS, PATHS):
            with subtests.test(path, other=other, is_renewed=is_renewed):
                link = await first_link(client, path, 1)
                assert plain(link).endswith(f"-{NUMBER:08x}") == is_renewed
                response = await client.get(on(other, sort=1, cursor=link.rpartition("cursor=")[2]))
                if other == path:
                    assert response.status_code == 200
                else:
                    problem = check_refusal(response, 400, "invalid-parameter", parameter="cursor")
                    assert "another listing" in problem["detail"]


async def test_of_an_empty_registry_only_the_cursor_that_it_gave_is_good(
    client: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in PATHS:
        with subtests.test(path):
            link = next_of(await client.get(on(path, sort=1)))
            assert link
            assert ok(await client.get(link)).json() == []
            response = await client.get(on(path, sort=1, cursor=cursor_at(TABLES[path], 1)))
            check_refusal(response, 410, "cursor-too-old", parameter="cursor")


@pytest.mark.usefixtures("filled")
async def test_a_filter_that_nothing_passes_does_not_make_a_cursor_old(client: httpx2.AsyncClient) -> None:
    link = await first_link(client, "/triggers", 1)
    follow = link.replace("/triggers?", f"/triggers?signer={Wallet(77).address}&")
    answer = await client.get(follow)
    assert (answer.status_code, answer.json()) == (200, [])


MISSPELT = [
    "s-1-", "s-1-0badcaf", "s-1-0BADCAFE", "s-1-00badcafe", "s-1--badcafe", "s-1-0badcafe-", "s-01-0badcafe",
    "1-0badcafe", "s--0badcafe", "s-1-0badcafg", "s-1-0x1badca", "s-1- badcafe", "s-1-0_badcaf",
]  # fmt: skip


@pytest.mark.one_engine
async def test_an_epoch_has_one_spelling(
    client: httpx2.AsyncClient, context: Context, subtests: pytest.Subtests
) -> None:
    await renew(context)
    for made_of in MISSPELT:
        with subtests.test(made_of):
            cursor = base64.urlsafe_b64encode(made_of.encode()).decode().rstrip("=")
            check_refusal(await client.get(f"/triggers?cursor={cursor}"), 400, "invalid-parameter", parameter="cursor")


async def test_a_database_without_the_row_is_in_its_first_epoch(client: httpx2.AsyncClient, context: Context) -> None:
    await context.database.write(lambda tx: tx.execute("DELETE FROM epoch"))
    link = next_of(await client.get("/triggers?sort=1"))
    assert link
    assert plain(link) == "t-0"
    await renew(context)
    knows_anew(context)
    check_refusal(await client.get(link), 410, "cursor-too-old")
    assert await context.database.fetch("SELECT id, number, renewals FROM epoch") == [(1, NUMBER, 1)]


class Counted:
    """A database that counts what it is asked for."""

    def __init__(self, context: Context) -> None:
        self._database = context.database
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        self.asked.append(sql)
        return await self._database.fetch(sql, parameters)


@pytest.mark.usefixtures("filled")
async def test_the_epoch_is_read_again_after_two_seconds_and_no_sooner(context: Context) -> None:
    counted, now = Counted(context), [100.0]
    epochs = Epochs(counted, seconds=lambda: now[0])  # pyright: ignore[reportArgumentType] - it has all of a database
    numbers = epochs.numbers(counted, "triggers")  # pyright: ignore[reportArgumentType] - likewise
    ((highest,),) = await context.database.fetch("SELECT max(seq) FROM triggers")
    for _ in range(50):
        assert await numbers.has_given(None, highest)
        assert await numbers.epoch() is None
    assert len(counted.asked) == 2, counted.asked
    await renew(context)
    now[0] += FRESH_SECONDS * 0.9
    assert await numbers.has_given(None, highest)
    assert len(counted.asked) == 2
    now[0] += FRESH_SECONDS * 0.2
    assert not await numbers.has_given(None, highest)
    assert await numbers.epoch() == NUMBER


@pytest.mark.usefixtures("filled")
async def test_a_cursor_of_an_epoch_that_another_process_has_just_begun_is_accepted(
    client: httpx2.AsyncClient, context: Context
) -> None:
    link = await first_link(client, "/triggers", 1)
    context.epochs._until = float("inf")  # this process still keeps the one that it has read
    await renew(context)
    assert plain(await first_link(client, "/triggers", 1)) == plain(link), "this process does not know it yet"
    new = cursor_at("triggers", Cursor(link.rpartition("cursor=")[2]).seq, NUMBER)
    assert len((await client.get(f"/triggers?sort=1&cursor={new}")).json()) == 1
    check_refusal(await client.get(link), 410, "cursor-too-old")
