"""Faults of a node: the bundle waits, the reason is shown, and other requests go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import httpx2
import pytest
from pins_world import QUICK, row, ticking, until, until_rows, with_node, working

from answers import ok
from applications import client_of
from builders import Bundle, Wallet, api_key_of, deploy
from conftest import Clock
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.pins.worker import PinLimits
from muniment.service.storage import open_database
from muniment.service.storage.sql import number_text
from pin_node import PinNode, pin_node
from postgres import Cluster


@pytest.fixture
def node() -> Iterator[PinNode]:
    with pin_node() as started:
        yield started


@pytest.fixture
def pinning(context: Context, node: PinNode) -> Context:
    return with_node(context, node.url)


@pytest.fixture
async def uploads(pinning: Context) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(Application(pinning)) as made:
        yield made


OF_THE_BUNDLE = {
    "500": "dag/import answered 500: import failed: no space left on device",
    "413": "dag/import answered 413: refused",
    "400": "dag/import answered 400: refused",
    "cut": "dag/import: unreachable",
    "half an answer": "dag/import: unreachable",
    "wrong root": "the node answered with another root",
    "two roots": "the node answered with another root",
    "no root": "the answer of dag/import ends without the root",
    "nothing": "the answer of dag/import ends without the root",
    "error at the end": "dag/import failed: unexpected EOF",
    "no json": "the node did not answer with JSON",
    "deep json": "the node did not answer with JSON",
    "strange json": "the node answered without the object Root",
    "endless": "dag/import: too-large",
}


async def test_a_bundle_that_fails_waits_with_its_reason_and_is_pinned_when_the_fault_is_over(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode, clock: Clock
) -> None:
    headers = {"x-api-key": await api_key_of(uploads, Wallet())}
    cids: list[str] = []
    async with working(pinning):
        for number, (fault, error) in enumerate(OF_THE_BUNDLE.items()):
            node.fault = fault
            answer = await uploads.post("/functions", files=Bundle(version=f"1.0.{number}").files, headers=headers)
            await until_rows(pinning, "failures = 1 AND taken = 0")
            waiting = await pinning.database.fetch("SELECT error, pinned_at_ms FROM pins WHERE failures = 1")
            assert waiting == [(error, None)], fault
            assert list(node.pinned) == cids, fault
            node.fault = ""
            clock.advance(seconds=2)
            pinned = "pinned_at_ms IS NOT NULL AND failures = 0 AND error IS NULL"
            await until_rows(pinning, pinned, number + 1)
            cids.append(ok(answer).json()["CID"])
            assert list(node.pinned) == cids, fault


async def test_a_long_reason_is_kept_short_and_printable(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode
) -> None:
    await deploy(uploads)
    node.fault = "pin error"
    async with working(pinning):
        await until_rows(pinning, "failures = 1")
    (error,) = await row(pinning, "error")
    assert isinstance(error, str)
    assert error.startswith("the node did not pin: block was not found locally (offline): [31mxxx")
    assert error.isprintable()
    assert len(error) < 400


async def test_an_answer_that_never_ends_is_given_up_in_time(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode
) -> None:
    await deploy(uploads)
    node.fault = "endless and slow"
    async with working(pinning, replace(QUICK, import_seconds_max=0.5)):
        await until_rows(pinning, "failures = 1 AND error = 'dag/import: timeout'")


async def test_a_bundle_that_fails_again_and_again_waits_longer_each_time(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode, clock: Clock
) -> None:
    await deploy(uploads)
    node.fault = "500"
    waits: list[float] = []
    async with working(pinning):
        for failures in range(1, 15):
            await until_rows(pinning, f"failures = {number_text(failures)} AND taken = 0")
            (due,) = await row(pinning, "due_at_ms")
            assert isinstance(due, int)
            waits.append((due - clock()) / 1000)
            clock.now_ms = due
    doubled = [min(2 * 2**number, 3_600) for number in range(14)]
    assert all(most / 2 - 0.01 <= wait <= most for wait, most in zip(waits, doubled, strict=True)), waits


async def test_other_bundles_go_on_while_one_fails(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode
) -> None:
    damaged, *good = [await deploy(uploads, Bundle(version=f"1.0.{number}", wasm=_wasm(number))) for number in range(4)]
    await _lose_block(pinning, b"leaf 0")
    async with working(pinning):
        await until_rows(pinning, "pinned_at_ms IS NOT NULL", 3)
        await until_rows(pinning, "failures = 1 AND error LIKE 'integrity: block % of stored content is missing'")
    assert set(node.pinned) == set(good)
    assert damaged not in node.pinned


def _wasm(number: int) -> bytes:
    return b"\0asm\1\0\0\0" + bytes((0, 8, 1)) + b"x" + f"leaf {number}".encode()


async def _lose_block(context: Context, content: bytes) -> None:
    """Remove the only block with `content`: a file with SQLite, a row with PostgreSQL."""
    if context.settings.database_url.startswith("sqlite"):
        files = (path for path in (context.settings.data_dir / "blocks").rglob("*") if path.is_file())
        (lost,) = [path for path in files if content in path.read_bytes()]
        lost.unlink()
    else:
        rows = await context.database.fetch("SELECT digest, data FROM blocks")
        (digest,) = [digest for digest, data in rows if content in data]
        await context.database.write(lambda tx: tx.execute("DELETE FROM blocks WHERE digest = ?", (digest,)))


OF_THE_NODE = {
    401: "pin/ls answered 401: the node is ill",
    404: "pin/ls answered 404: the node is ill",
    429: "pin/ls answered 429: the node is ill",
    503: "pin/ls answered 503: the node is ill",
    302: "pin/ls answered 302",
    307: "pin/ls answered 307",
}


async def test_a_node_that_cannot_be_used_is_charged_to_no_bundle(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode, clock: Clock
) -> None:
    headers = {"x-api-key": await api_key_of(uploads, Wallet())}
    async with working(pinning), ticking(clock):
        for number, (status, error) in enumerate(OF_THE_NODE.items(), 1):
            node.look_status = status
            imports = len(node.imports)
            ok(await uploads.post("/functions", files=Bundle(version=f"1.0.{number}").files, headers=headers))
            await until_rows(pinning, "error IS NOT NULL AND failures = 0 AND taken = 0")
            assert await pinning.database.fetch("SELECT error FROM pins WHERE error IS NOT NULL") == [(error,)], status
            assert len(node.imports) == imports, status
            node.look_status = 200
            await until_rows(pinning, "pinned_at_ms IS NOT NULL AND error IS NULL", number)


async def test_a_node_that_refuses_imports_alone_is_charged_to_no_bundle(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode
) -> None:
    await deploy(uploads)
    node.fault = "403"
    async with working(pinning):
        await until_rows(pinning, "error = 'dag/import answered 403: refused' AND failures = 0 AND taken = 0")
        node.fault = ""
        await until_rows(pinning, "pinned_at_ms IS NOT NULL")


async def test_a_program_that_is_no_node_is_named(uploads: httpx2.AsyncClient, pinning: Context, node: PinNode) -> None:
    await deploy(uploads)
    async with working(with_node(pinning, f"{node.url}/prefix")):
        await until_rows(pinning, "error = 'pin/ls answered 404: 404 page not found' AND failures = 0")


async def test_credentials_reach_only_the_node(
    uploads: httpx2.AsyncClient, pinning: Context, clock: Clock, node: PinNode, capsys: pytest.CaptureFixture[str]
) -> None:
    printed: list[str] = []

    def is_logged() -> bool:
        printed.extend(capsys.readouterr())
        return "Bearer ********" in "".join(printed)

    await deploy(uploads)
    node.authorization = "Bearer right-secret"
    async with working(with_node(pinning, node.url, "Bearer wrong-secret")):
        await until_rows(pinning, "error IS NOT NULL AND failures = 0 AND taken = 0")
        await until(is_logged)  # after the row is written
    (error,) = await row(pinning, "error")
    assert error == "pin/ls answered 403: 403 - Forbidden, you said Bearer ********"
    # A bundle that a worker had just taken when it ended is due when its turn is over.
    clock.advance(seconds=QUICK.lease_ms / 1000)
    async with working(with_node(pinning, node.url, "Bearer right-secret")):
        await until_rows(pinning, "pinned_at_ms IS NOT NULL")
    printed.extend(capsys.readouterr())
    assert "secret" not in "".join(printed)


async def test_credentials_are_hidden_in_json_too(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode, capsys: pytest.CaptureFixture[str]
) -> None:
    await deploy(uploads)
    node.authorization, node.refuses_in_json = "Bearer right", True
    async with working(with_node(pinning, node.url, 'Bearer wrong&<"secret')):
        await until_rows(pinning, "error IS NOT NULL AND failures = 0 AND taken = 0")
    (error,) = await row(pinning, "error")
    assert error == "pin/ls answered 403: Bearer ********"
    assert "secret" not in "".join(capsys.readouterr())


async def test_workers_outlive_a_database_that_is_away(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode
) -> None:
    await pinning.database.write(lambda tx: tx.execute("ALTER TABLE pins RENAME TO moved"))
    async with working(pinning, PinLimits(idle_seconds=0.02, rest_seconds=0.02, rest_seconds_max=0.05)):
        await asyncio.sleep(0.3)
        await pinning.database.write(lambda tx: tx.execute("ALTER TABLE moved RENAME TO pins"))
        cid = await deploy(uploads)
        await until_rows(pinning, "pinned_at_ms IS NOT NULL")
    assert list(node.pinned) == [cid]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_the_workers_go_on_when_their_role_gets_the_rights_to_the_queue_later(
    pinning: Context, uploads: httpx2.AsyncClient, node: PinNode, cluster: Cluster, clock: Clock
) -> None:
    cid = await deploy(uploads)
    url = pinning.settings.database_url
    name = url.rpartition("/")[2]
    for statement in (
        "CREATE ROLE pinner LOGIN", "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO pinner",
        "REVOKE ALL ON pins FROM pinner",
    ):  # fmt: skip
        await cluster.execute(statement, name)
    database = open_database(url.replace("//muniment@", "//pinner@"), data_dir=pinning.settings.data_dir)
    try:
        async with working(replace(pinning, database=database)):
            await asyncio.sleep(0.5)  # every task of the workers has met the refusal
            assert not node.pinned
            await cluster.execute("GRANT SELECT, INSERT, UPDATE ON pins TO pinner", name)
            async with ticking(clock):
                await until(lambda: list(node.pinned) == [cid])
    finally:
        await database.close()
        await cluster.execute("DROP OWNED BY pinner", name)
        await cluster.execute("DROP ROLE pinner")
