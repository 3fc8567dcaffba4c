"""A GET has the same answer with no body and with an empty one, in one piece or many, and in its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx2
import pytest

from builders import TriggerDraft, Wallet, deploy, register
from connection import Connection
from service import Service

# Announces an empty body.
EMPTY_BODY = "content-length: 0\r\n"


class World:
    """A running service with triggers."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.sigs = asyncio.run(self._fill())

    async def _fill(self) -> list[str]:
        async with httpx2.AsyncClient(base_url=self.service.url) as client:
            cid = await deploy(client)
            drafts = [TriggerDraft(cid, version=f"1.0.{number}", description="x" * 900) for number in range(120)]
            return [(await register(client, draft))["sig"] for draft in drafts]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with Service(tmp_path_factory.mktemp("gets") / "data") as started:
        yield World(started)


def targets(world: World) -> list[str]:
    sig, owner = world.sigs[3], Wallet().address
    return [
        f"/triggers/{sig}", f"/triggers/0x{sig[2:].upper()}", f"/triggers/{sig}?x=1", f"/triggers/{sig[:-1]}",
        f"/triggers/0x{'11' * 64}1b", "/triggers/", "/triggers/%30x", "/triggers", "/triggers?limit=100",
        f"/triggers?signer={owner}&limit=10", "/triggers?limit=0", "/triggers?signer=0x%zz",
        "/triggers?offset=50&limit=3", "/triggers?offset=2000", "/triggers?sort=1&cursor=dC0x", "//triggers",
        f"/triggers/{sig}#x", "/triggers#x", "/triggers?limit=1#x", "/triggers/a:b@c",
        "/triggers/a[b]{c}|^`\\",
        "/triggers?limit=1&x=[{|^`", "/triggers;x", "http://test/triggers", f"/triggers/{sig}/",
        "/triggers?", "/intents", "/intents?limit=1", "/intents?offset=-1", "/healthz",
    ]  # fmt: skip


async def fetch(world: World, target: str, more: str) -> tuple[int, dict[str, str], bytes]:
    connection = await Connection.open(world.service.url)
    await connection.send(f"GET {target} HTTP/1.1\r\nhost: test\r\nx-request-id: same\r\n{more}\r\n".encode())
    answer = await connection.answer()
    await connection.close()
    return answer.status, {**answer.headers, "date": ""}, answer.body


HEADERS = ["", "accept: application/xml\r\n", 'if-none-match: "no"\r\n', "if-none-match: *\r\n", "x-a: 1\r\nx-a: 2\r\n"]


@pytest.mark.parametrize("more", [*HEADERS, "if-none-match: a\r\nif-none-match: b\r\n"])
async def test_a_get_has_the_same_answer_with_an_empty_body(world: World, more: str) -> None:
    for target in targets(world):
        assert await fetch(world, target, more) == await fetch(world, target, more + EMPTY_BODY), target


async def test_a_pipeline_is_answered_in_its_order(world: World) -> None:
    kinds = [
        (f"GET /triggers/{world.sigs[0]}", "", world.sigs[0]), ("GET /triggers?limit=1", "", world.sigs[-1]),
        ("GET /healthz", "", "ok"), (f"GET /triggers/{world.sigs[1]}", EMPTY_BODY, world.sigs[1]),
        ("POST /users/nonce", "content-length: 0\r\n", "invalid-body"),
        (f"GET /triggers/{world.sigs[2]}", "", world.sigs[2]), ("GET /triggers?offset=2000", "", "[]"),
    ]  # fmt: skip
    pipeline = [kinds[at * 5 % len(kinds)] for at in range(40)]
    connection = await Connection.open(world.service.url)
    await connection.send(
        "".join(f"{line} HTTP/1.1\r\nhost: test\r\n{more}\r\n" for line, more, _ in pipeline).encode()
    )
    for line, _, expected in pipeline:
        answer = await connection.answer()
        assert expected in answer.body.decode(), line
    await connection.close()


@pytest.mark.parametrize("pieces", [1, 7, 50])
async def test_a_head_in_pieces_is_answered_once(world: World, pieces: int) -> None:
    request = f"GET /triggers/{world.sigs[0]} HTTP/1.1\r\nhost: test\r\n\r\n".encode()
    connection = await Connection.open(world.service.url)
    for _ in range(2):
        for at in range(0, len(request), pieces):
            await connection.send(request[at : at + pieces])
            await asyncio.sleep(0.001)
        answer = await connection.answer()
        assert world.sigs[0].encode() in answer.body
    await connection.close()
