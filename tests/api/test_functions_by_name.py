"""GET /functions?name=: both engines find what a plain comparison in Python finds, and walk an index."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, LiteralString, cast

import httpx2
import pytest
import pytest_asyncio
from hypothesis import given, settings as hypothesis_settings, strategies as st
from standing_world import ENGINES, Standing, standing_registry

from answers import ok, target_of
from builders import Bundle, Wallet, deploy
from muniment.protocol.evm.address import Address
from muniment.protocol.functions.rules import has_lasting_key, name_key
from muniment.protocol.functions.types import Function, NamePrefix
from muniment.protocol.ipfs.cid import cid_v0
from muniment.protocol.wire import SemVer, encode, iso_time
from muniment.service.http.paging import Cursor, cursor_after
from muniment.service.resources.functions import store
from muniment.service.resources.functions.store import FunctionQuery, search
from muniment.service.resources.intents.parts import insert_rows
from muniment.service.storage.database import Database, Row, Transaction

pytestmark = pytest.mark.asyncio(loop_scope="module")

CREATORS = [Address.parse(Wallet(number).address) for number in (1, 2)]
# The longest key: U+FDFA becomes 18 characters, in 33 bytes. An entry of an index of PostgreSQL has 2,704 bytes at
# most, compressed; the other key begins with what can hardly be compressed.
LONGEST = "\ufdfa" * 100
MIXED = "".join(map(chr, range(0x3300, 0x331E))) + "\ufdfa" * 70
NAMES = [
    "swap", "Swap", "SWAP 100%", "swap_", "swap\\", "swap\\_%", "100% safe", "1000", "a_b", "axb", "a%b", "A\\b",
    "Stra\u00dfe", "STRASSE", "strasse 2", "\ufb01nance", "FInance", "\u0390x", "\u03aa\u0301x", "\u0131s", "\u0130s",
    "is", "i\u0307s", "e\u0301clair", "\u00e9clair", "\u00c9CLAIR", "eclair", "\ud55c\uae00",
    "\u1112\u1161\u11ab\uae00", "\uff53\uff57\uff41\uff50", "\u00c4pfel", "\u00e4pfel", "apfel", "Zebra", "zebra",
    "zz", "zz\U0010ffff", "zz\uffff", "zzz", "zz\x01", "\U00010400\U00010400x", "\U00010428\U00010428x", "\u01c5x",
    "\u01c4x", "\u03c2\u03c2", "\u03a3\u03a3", "\u03c3\u03c2", "  two spaces", "' OR 1=1 --", LONGEST, MIXED,
]  # fmt: skip


def in_reference(name: str) -> str:
    """The comparable form of a name, as the contract says it."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


@dataclass(frozen=True)
class Stored:
    """A stored function: its CID, name and creators, in the order in which they joined."""

    cid: str
    name: str


async def fill(tx: Transaction) -> tuple[list[Stored], list[Stored]]:
    """A function of each name, by the first creator; every third also by the second, the last first."""
    made = list[tuple[store.NewFunction, str]]()
    every, second = list[Stored](), list[Stored]()
    for n, name in enumerate(NAMES):
        digest, version = n.to_bytes(32), SemVer.parse(f"1.0.{n}")
        function = Function(
            cid=cid_v0(digest), name=name, version=version, description="x", created_at=iso_time(n), creator=CREATORS[0]
        )
        new = store.NewFunction(digest, digest, {}, n, encode(function).decode())
        made.append((new, name))
        every.append(Stored(str(function.cid), name))
        await store.insert(tx, new, CREATORS[0], name, str(version))
    for n in reversed(range(0, len(NAMES), 3)):
        new, name = made[n]
        await store.insert(tx, new, CREATORS[1], name, f"1.0.{n}")
        second.append(every[n])
    return every, second


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENGINES)
async def standing(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Standing, list[Stored], list[Stored]]]:
    async with standing_registry(request) as made:
        yield made, *await made.context.database.write(fill)


FORMS = (
    partial(unicodedata.normalize, "NFC"), partial(unicodedata.normalize, "NFD"),
    partial(unicodedata.normalize, "NFKC"), partial(unicodedata.normalize, "NFKD"),
)  # fmt: skip


@st.composite
def prefixes(draw: st.DrawFn) -> str:
    """The beginning of a name, or of what is nearly one, spelled in any way."""
    name = draw(st.sampled_from(NAMES))
    begin = name[: draw(st.integers(2, 6) | st.just(100))]
    spell = draw(st.sampled_from([str, str.upper, str.lower, str.casefold, str.title]))
    text = draw(st.sampled_from(FORMS))(spell(begin))
    text = text[:-1] + draw(st.sampled_from("%_\\x")) if draw(st.booleans()) else text
    return text[:100].ljust(2, "a")


ASKED = st.tuples(
    prefixes(), st.sampled_from([1, -1]), st.integers(1, 5), st.sampled_from([None, 0, 1]), st.booleans(), st.booleans()
)


async def paged(client: httpx2.AsyncClient, query: dict[str, Any], *, by_cursor: bool) -> list[str]:
    """The CIDs of all pages."""
    seen = list[str]()
    answer = ok(await client.get("/functions", params=query))
    while page := answer.json():
        seen += [each["CID"] for each in page]
        if by_cursor:
            if (target := target_of(answer)) is None:
                break
            answer = ok(await client.get(target))
        else:
            answer = ok(await client.get("/functions", params={**query, "offset": len(seen)}))
    return seen


async def test_both_engines_find_what_python_finds(
    standing: tuple[Standing, list[Stored], list[Stored]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, every, second = standing
    asked = list[tuple[str, int, int, int | None, bool, bool]]()

    @hypothesis_settings(max_examples=max(hypothesis_settings().max_examples // 2, 40))
    @given(ASKED)
    def ask(one: tuple[str, int, int, int | None, bool, bool]) -> None:
        asked.append(one)

    ask()
    found = 0
    for number, (prefix, sort, limit, creator, with_cids, by_cursor) in enumerate(asked):
        # As if there were more functions: few are found by the index, others by a walk, which may end in a thread.
        monkeypatch.setattr(store, "ROWS_WALKED_MAX", (500, 0, 3)[number % 3])
        rows = second if creator == 1 else every
        wanted = [each for each in rows if in_reference(each.name).startswith(in_reference(prefix))]
        query: dict[str, Any] = {"name": prefix, "sort": sort, "limit": limit}
        if creator is not None:
            query["creator"] = CREATORS[creator]
        if with_cids:
            query["cids"] = ",".join(each.cid for each in every[::2])
            wanted = [each for each in wanted if each in every[::2]]
        assert await paged(world.client, query, by_cursor=by_cursor) == [each.cid for each in wanted[::sort]], query
        found += len(wanted)
    assert found > len(asked)


async def test_no_character_is_a_wildcard(standing: tuple[Standing, list[Stored], list[Stored]]) -> None:
    world, _, _ = standing

    async def named(prefix: str) -> list[str]:
        answer = ok(await world.client.get("/functions", params={"name": prefix, "sort": 1, "limit": 100}))
        return [each["name"] for each in answer.json()]

    assert await named("a_") == ["a_b"]
    assert await named("a%") == ["a%b"]
    assert await named("a\\") == ["A\\b"]
    assert await named("swap\\") == ["swap\\", "swap\\_%"]
    assert await named("%%") == await named("__") == []
    wide = "\uff53\uff57\uff41\uff50"
    assert await named("sWaP") == ["swap", "Swap", "SWAP 100%", "swap_", "swap\\", "swap\\_%", wide]


async def test_a_deployed_function_of_the_longest_key_is_found(
    standing: tuple[Standing, list[Stored], list[Stored]],
) -> None:
    world, _, _ = standing
    for version, name in enumerate((LONGEST, MIXED)):
        assert len(name_key(LONGEST)) == 3_300
        cid = await deploy(world.client, Bundle(name, version=f"9.0.{version}"), Wallet(3))
        query = {"name": name, "creator": Wallet(3).address}
        assert [each["CID"] for each in ok(await world.client.get("/functions", params=query)).json()] == [cid]


@pytest.mark.one_engine
async def test_keys_last_where_every_python_knows_the_characters() -> None:
    assert all(has_lasting_key(each) for each in ("Swap", "\u00c4\ufb01\ud55c"))
    assert not any(has_lasting_key(each) for each in ("\U0001ccd6", "swap\U0001f984"))


# Of the newest functions all begin with `swap`; twenty old ones with `few`, and a thousand with `old`.
FEW, OLD, ALL = 20, 1_000, 5_000


async def fill_many(tx: Transaction) -> None:
    functions, creators = list[tuple[object, ...]](), list[tuple[object, ...]]()
    for n in range(ALL):
        name = f"{'few' if n < FEW else 'old' if n < FEW + OLD else 'swap'} {n}"
        digest = n.to_bytes(32)
        functions.append((n + 1, digest, digest, "{}", 1, name.encode(), "{}"))
        creators.append((n + 1, CREATORS[0].raw, n + 1, name, "1.0.0", 1))
    for start in range(0, ALL, 500):
        await insert_rows(
            tx, "functions (seq, digest, content, inputs, created_at_ms, name_key, record)", functions[start:][:500]
        )
        await insert_rows(
            tx, "function_creators (seq, creator, function_seq, name, version, joined_at_ms)", creators[start:][:500]
        )
    await tx.execute("ANALYZE")


class Explained:
    """A database that answers, and explains what it is asked."""

    def __init__(self, database: Database, *, is_sqlite: bool) -> None:
        self._database = database
        self._explain: LiteralString = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN (COSTS OFF)"
        self.plans_as_written = database.plans_as_written
        self.plans: list[str] = []
        self.slow = 0

    async def _tell(self, sql: LiteralString, parameters: Sequence[object]) -> None:
        lines = await self._database.fetch(f"{self._explain} {sql}", parameters)
        self.plans.append("\n".join(str(line[-1]) for line in lines))

    async def fetch(self, sql: LiteralString, parameters: Sequence[object] = ()) -> list[Row]:
        await self._tell(sql, parameters)
        return await self._database.fetch(sql, parameters)

    async def fetch_some(self, sql: LiteralString, parameters: Sequence[object], **bounds: int) -> Any:
        await self._tell(sql, parameters)
        return await cast("Any", self._database).fetch_some(sql, parameters, **bounds)

    async def fetch_slow(self, sql: LiteralString, parameters: Sequence[object] = (), **_: str) -> list[Row]:
        self.slow += 1
        return await self.fetch(sql, parameters)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENGINES)
async def explained(request: pytest.FixtureRequest) -> AsyncIterator[Explained]:
    async with standing_registry(request, spoils_events=True) as made:
        await made.context.database.write(fill_many)
        yield Explained(made.context.database, is_sqlite=request.param == "sqlite")


# The prefix; whether a thread reads the page of it, without and with a creator.
WAYS = {"few": (False, True), "none": (False, True), "old": (True, True), "swap": (False, False)}


async def test_no_page_of_a_name_walks_the_table(explained: Explained) -> None:
    cursor = Cursor(cursor_after("functions", ALL, None).decode())
    places: list[dict[str, Any]] = [{}, {"offset": 3}, {"cursor": cursor}]
    for prefix, ways in WAYS.items():
        for creator, is_slow in zip((None, CREATORS[0]), ways, strict=True):
            for place in places:
                explained.plans.clear()
                explained.slow = 0
                page = await search(
                    cast("Database", explained), FunctionQuery(name=NamePrefix(prefix), creator=creator, **place)
                )
                assert len(page.records) == (0 if prefix == "none" else 10), (prefix, place)
                assert (explained.slow > 0) == is_slow, (prefix, creator, place)
                for plan in explained.plans:
                    assert "Seq Scan" not in plan, plan
                if creator is None and prefix != "swap":  # the statement for the numbers of the page
                    assert "functions_by_name" in explained.plans[-2 if is_slow else -1], explained.plans
                    assert "functions_by_name" in explained.plans[0] or is_slow, explained.plans
