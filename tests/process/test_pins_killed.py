"""Bundles reach the IPFS node although the service is killed or stopped."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from builders import Bundle, Wallet, deploy
from pin_node import PinNode, pin_node
from service import Service


@pytest.fixture
def node() -> Iterator[PinNode]:
    with pin_node() as started:
        yield started


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come to pass"
        time.sleep(0.02)


def upload(service: Service, *bundles: Bundle) -> list[str]:
    async def send() -> list[str]:
        async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
            return [await deploy(client, bundle, Wallet(1 + number)) for number, bundle in enumerate(bundles)]

    return asyncio.run(send())


def rows(service: Service, sql: str) -> list[tuple[int, ...]]:
    """What a statement gives; the service may run meanwhile."""
    with closing(sqlite3.connect(service.data_dir / "muniment.db")) as connection, connection:
        return connection.execute(sql).fetchall()


def serving(tmp_path: Path, node: PinNode) -> Service:
    return Service(tmp_path / "data", environment={"MUNIMENT_IPFS_PIN_URL": node.url})


def test_a_bundle_that_was_being_sent_at_a_kill_is_pinned_after_the_next_start(tmp_path: Path, node: PinNode) -> None:
    node.may_answer.clear()
    service = serving(tmp_path, node).start()
    began_ms = time.time_ns() // 1_000_000
    (cid,) = upload(service, Bundle())
    until(lambda: node.imports)
    sent_ms = time.time() * 1000
    service.kill()
    assert rows(service, "SELECT taken, pinned_at_ms IS NULL FROM pins") == [(1, 1)]
    with service:
        # The time of the killed worker is three minutes: the test lets them go by.
        ((due_at_ms,),) = rows(service, "SELECT due_at_ms FROM pins")
        assert began_ms <= due_at_ms - 180_000 <= sent_ms
        assert node.imports == [cid]
        node.fault = "lost answer"  # the kill closed that connection: this only lets the first import end
        node.may_answer.set()
        until(lambda: node.at_once == 0)
        node.pinned.clear()
        node.fault = ""
        rows(service, "UPDATE pins SET due_at_ms = 0")
        until(lambda: rows(service, "SELECT taken, pinned_at_ms IS NULL FROM pins") == [(0, 0)])
    assert list(node.pinned) == [cid]
    assert node.imports == [cid, cid]


def test_a_bundle_whose_upload_was_answered_before_a_kill_is_pinned(tmp_path: Path, node: PinNode) -> None:
    node.look_status = 503
    service = serving(tmp_path, node).start()
    cids = upload(service, *(Bundle(version=f"1.0.{number}") for number in range(5)))
    service.kill()
    assert not node.imports
    node.look_status = 200
    with service:
        rows(service, "UPDATE pins SET due_at_ms = 0 WHERE taken = 1")  # as if three minutes had gone by
        until(lambda: set(node.pinned) == set(cids))


def test_an_orderly_stop_gives_bundles_back_and_does_not_wait_for_the_node(tmp_path: Path, node: PinNode) -> None:
    node.may_answer.clear()
    service = serving(tmp_path, node).start()
    upload(service, Bundle())
    until(lambda: node.imports)
    started = time.monotonic()
    assert service.stop(signal.SIGTERM) == 0
    assert time.monotonic() - started < 60
    assert rows(service, "SELECT taken, due_at_ms <= waits_since_ms + 60000 FROM pins") == [(0, 1)]


def test_the_credentials_of_the_node_may_be_in_a_file(tmp_path: Path, node: PinNode) -> None:
    node.authorization = "Bearer of-the-node"
    (tmp_path / "authorization").write_text("Bearer of-the-node\n")
    environment = {
        "MUNIMENT_IPFS_PIN_URL": node.url, "MUNIMENT_IPFS_PIN_AUTHORIZATION_FILE": str(tmp_path / "authorization"),
    }  # fmt: skip
    with Service(tmp_path / "data", environment=environment) as service:
        (cid,) = upload(service, Bundle())
        until(lambda: cid in node.pinned)
