"""Token lists from files and URLs: merged in their order, kept on disk, and never made worse by a refresh."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_server import ForeignServer, foreign_server
from structlog.testing import capture_logs
from token_list_documents import DAI, USDC, document, entry

from muniment.chains.token_lists import LISTS_MAX, RETRY_MS, TokenLists
from muniment.outgoing import Outgoing

pytestmark = pytest.mark.programs  # a list is read in a process of its own

HOUR_MS = 3_600_000


@pytest.fixture
def server() -> Iterator[ForeignServer]:
    with foreign_server() as server:
        server.body = content(entry(symbol="FIRST"))
        yield server


@pytest.fixture
async def outgoing() -> AsyncIterator[Outgoing]:
    async with Outgoing(allow_private=True) as outgoing:
        yield outgoing


class World:
    """What token lists stand on, with a clock that a test moves."""

    def __init__(self, directory: Path, outgoing: Outgoing) -> None:
        self.directory = directory
        self.outgoing = outgoing
        self.now = 1_763_700_000_000

    def lists(self, *lists: str | Path, chains: tuple[int, ...] = (1, 10)) -> TokenLists:
        return TokenLists(
            lists, chains=chains, directory=self.directory, outgoing=self.outgoing,
            now_ms=lambda: self.now, refresh_hours=6,
        )  # fmt: skip


@pytest.fixture
def world(tmp_path: Path, outgoing: Outgoing) -> World:
    return World(tmp_path / "lists", outgoing)


def content(*tokens: Any) -> bytes:
    return json.dumps(document(*tokens)).encode()


def written(path: Path, *tokens: Any) -> Path:
    path.write_bytes(content(*tokens))
    return path


def symbols(lists: TokenLists, chain_id: int = 1) -> list[str]:
    return [token.symbol for token in lists.tokens(chain_id)]


async def test_files_are_merged_and_the_earlier_is_right(world: World, tmp_path: Path) -> None:
    first = written(tmp_path / "a.json", entry(symbol="A"), entry(chainId=56))
    second = written(tmp_path / "b.json", entry(symbol="B"), entry(symbol="C", address=DAI))
    lists = world.lists(first, second)
    assert symbols(lists) == ["A", "C"]
    assert [token.address for token in lists.tokens(1)] == [USDC, DAI]


async def test_chains_that_are_not_served_have_no_tokens(world: World, tmp_path: Path) -> None:
    lists = world.lists(written(tmp_path / "a.json", entry(chainId=56), entry(chainId=10)))
    assert (lists.tokens(56), lists.tokens(1), symbols(lists, 10)) == ((), (), ["USDC"])


async def test_a_broken_or_missing_file_is_an_error_at_start(world: World, tmp_path: Path) -> None:
    broken = written(tmp_path / "broken.json", entry(decimals=256))
    with pytest.raises(ValueError, match=r"broken\.json: /tokens/0/decimals: "):
        world.lists(broken)
    with pytest.raises(ValueError, match=r"missing\.json: No such file"):
        world.lists(tmp_path / "missing.json")


@pytest.mark.parametrize("url", ["http://", "https:///list.json", "https://a b/", "http://exämple.org/"])
async def test_a_url_without_a_sound_host_is_an_error_at_start(world: World, url: str) -> None:
    with pytest.raises(ValueError, match="the URL of a token list"):
        world.lists(url)


async def test_too_many_lists_are_an_error_at_start(world: World) -> None:
    with pytest.raises(ValueError, match="at most 32"):
        world.lists(*("x.json" for _ in range(LISTS_MAX + 1)))


async def test_a_url_is_fetched_and_kept_for_a_start_without_network(world: World, server: ForeignServer) -> None:
    server.body = content(entry(symbol="FIRST"), entry(chainId=56))
    lists = world.lists(server.url + "/list.json")
    assert symbols(lists) == []
    await lists.refresh()
    assert (symbols(lists), symbols(lists, 56)) == (["FIRST"], [])
    assert symbols(world.lists(server.url + "/list.json")) == ["FIRST"]
    assert len(server.asked) == 1
    assert [path.suffix for path in world.directory.iterdir()] == [".json"]


async def test_a_list_is_asked_for_again_when_it_is_due(world: World, server: ForeignServer) -> None:
    lists = world.lists(server.url)
    await lists.refresh()
    server.body = content(entry(symbol="SECOND"))
    world.now += 6 * HOUR_MS - 1
    await lists.refresh()
    assert symbols(lists) == ["FIRST"]
    world.now += 1
    await lists.refresh()
    assert symbols(lists) == ["SECOND"]
    assert symbols(world.lists(server.url)) == ["SECOND"]


@pytest.mark.parametrize(
    "broken",
    [
        {"status": 500}, {"body": b"<html>"}, {"body": content(entry(decimals=256))}, {"body": b""},
        {"status": 302, "headers": {"location": "/other"}},
        {"body": content(entry(symbol="SECOND")).ljust(4 * 2**20 + 1)}, {"body": b" " * (9 * 2**20)},
    ],
    ids=["500", "html", "broken-token", "empty", "redirect", "over-4-mib", "over-8-mib"],
)  # fmt: skip
async def test_a_broken_refresh_keeps_the_last_good_list(world: World, server: ForeignServer, broken: Any) -> None:
    lists = world.lists(server.url)
    await lists.refresh()
    for name, value in broken.items():
        setattr(server, name, value)
    world.now += 6 * HOUR_MS
    with capture_logs() as logs:
        await lists.refresh()
    assert symbols(lists) == symbols(world.lists(server.url)) == ["FIRST"]
    assert [(line["event"], line["log_level"]) for line in logs] == [("token list not refreshed", "warning")]
    assert len(server.asked) == 2


async def test_after_a_failure_a_list_is_asked_for_sooner(world: World, server: ForeignServer) -> None:
    lists = world.lists(server.url)
    server.status = 503
    await lists.refresh()
    server.status = 200
    world.now += RETRY_MS
    await lists.refresh()
    assert symbols(lists) == ["FIRST"]


async def test_a_damaged_kept_file_is_fetched_again(world: World, server: ForeignServer) -> None:
    await world.lists(server.url).refresh()
    (kept,) = world.directory.iterdir()
    kept.write_bytes(b"{")
    with capture_logs() as logs:
        lists = world.lists(server.url)
    assert [line["event"] for line in logs] == ["kept token list is damaged"]
    assert symbols(lists) == []
    await lists.refresh()
    assert symbols(lists) == ["FIRST"]


async def test_a_disk_that_takes_nothing_does_not_lose_the_list(world: World, server: ForeignServer) -> None:
    world.directory.write_bytes(b"a file where the directory should be")
    lists = world.lists(server.url)
    with capture_logs() as logs:
        await lists.refresh()
    assert symbols(lists) == ["FIRST"]
    assert [line["event"] for line in logs] == ["token list not kept on disk"]


async def test_the_log_shows_no_keys(world: World, server: ForeignServer) -> None:
    server.status = 404
    with capture_logs() as logs:
        await world.lists(server.url + "/list.json?key=hidden").refresh()
    assert logs
    assert "hidden" not in str(logs)
