"""A service whose files are removed or replaced while it runs: every acknowledged write survives a restart."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, Wallet, api_key_of, deploy
from mounts import mounted, needs_mounts
from service import Service

pytestmark = pytest.mark.long

VERSIONS = count()
# A change is noticed in five seconds; a busy machine may need longer.
NOTICED_SECONDS_MAX = 60
# How often each claim about answers is looked at.
TURNS = 8


class Registry:
    """A service, and every trigger that it has acknowledged."""

    def __init__(self, service: Service, cid: str) -> None:
        self.service = service
        self._cid = cid
        # A connection for each request, as if each came from another client.
        self._client = httpx2.Client(limits=httpx2.Limits(max_keepalive_connections=0), trust_env=False)
        self.acknowledged: list[dict[str, Any]] = []

    def get(self, path: str, **parameters: Any) -> httpx2.Response:
        return self._client.get(f"{self.service.url}{path}", params=parameters)

    def write(self) -> httpx2.Response:
        body = TriggerDraft(self._cid, version=f"1.0.{next(VERSIONS)}").signed()
        response = self._client.post(f"{self.service.url}/triggers", json=body)
        if response.status_code == 200:
            self.acknowledged.append(response.json())
        return response

    def write_often(self) -> None:
        for _ in range(TURNS):
            assert self.write().status_code == 200

    def assert_refuses(self, why: str) -> None:
        """No write is acknowledged, and within five seconds the process says that it is not ready; both say why."""
        for _ in range(TURNS):
            response = self.write()
            assert (response.status_code, response.json()["code"]) == (503, "database-unavailable"), response.text
            assert why in response.json()["detail"]
        self.wait_until_ready_says(503, why)

    def wait_until_ready_says(self, status: int, why: str = "") -> None:
        """Until it does; what it said before may be a few seconds old."""
        deadline = time.monotonic() + NOTICED_SECONDS_MAX
        while not all(self._says(status, why) for _ in range(TURNS)):
            assert time.monotonic() < deadline, f"/readyz is not {status}, or does not say why"

    def _says(self, status: int, why: str) -> bool:
        response = self.get("/readyz")
        return response.status_code == status and why in response.json().get("detail", "")

    def assert_all_there(self) -> None:
        listed = {each["sig"] for each in ok(self.get("/triggers", limit=100)).json()}
        assert {each["sig"] for each in self.acknowledged} <= listed


def registry_of(service: Service) -> Registry:
    async def deployed() -> str:
        async with httpx2.AsyncClient(base_url=service.url) as client:
            return await deploy(client)

    made = Registry(service, asyncio.run(deployed()))
    made.write_often()
    return made


async def logged_in(url: str) -> str:
    async with httpx2.AsyncClient(base_url=url) as client:
        return await api_key_of(client, Wallet(9))


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Service(tmp_path / "data") as started:
        yield registry_of(started)


def test_nothing_is_acknowledged_while_the_database_is_elsewhere_and_it_goes_on_when_that_is_back(
    registry: Registry,
) -> None:
    path = registry.service.data_dir / "muniment.db"
    aside = path.rename(path.with_name("aside.db"))
    registry.assert_refuses("the file muniment.db was removed")
    registry.assert_all_there()  # reading goes on
    aside.rename(path)
    registry.wait_until_ready_says(200)
    registry.write_often()
    registry.service.kill()
    registry.service.start()
    registry.assert_all_there()


def test_nothing_is_acknowledged_when_another_file_lies_in_the_place_of_the_database(registry: Registry) -> None:
    path = registry.service.data_dir / "muniment.db"
    Path(shutil.copy(path, path.with_name("copy.db"))).rename(path)
    registry.assert_refuses("the file muniment.db was replaced by another: start the service again")


def test_nothing_is_acknowledged_when_the_data_directory_is_made_anew(registry: Registry) -> None:
    data = registry.service.data_dir
    shutil.rmtree(data)
    registry.assert_refuses("the file muniment.db was removed")
    data.mkdir()
    registry.assert_refuses("the file muniment.db was removed")
    assert list(data.iterdir()) == []  # nothing is made where an operator may be about to put a registry
    registry.service.stop()
    registry.service.start()
    assert ok(registry.get("/triggers")).json() == []


def stop(service: Service) -> None:
    assert service.stop() == 0


@pytest.mark.parametrize("end", [stop, Service.kill], ids=["stopped", "killed"])
def test_without_its_log_nothing_is_acknowledged_and_a_restart_finds_every_acknowledged_write(
    registry: Registry, end: Callable[[Service], None]
) -> None:
    (registry.service.data_dir / "muniment.db-wal").unlink()
    registry.assert_refuses("the file muniment.db-wal was removed")
    end(registry.service)
    registry.service.start()
    registry.assert_all_there()
    registry.write_often()
    assert registry.service.stop() == 0


def test_without_the_memory_that_processes_share_nothing_is_acknowledged_until_a_restart(registry: Registry) -> None:
    (registry.service.data_dir / "muniment.db-shm").unlink()
    registry.assert_refuses("the file muniment.db-shm was removed")
    assert registry.service.stop() == 0
    registry.service.start()
    registry.assert_all_there()
    registry.write_often()


def test_a_process_that_stops_leaves_files_alone_that_replaced_its_own(registry: Registry) -> None:
    """SQLite removes the log of a database that nobody uses any more, by its name: it may be another's by then."""
    data = registry.service.data_dir
    for path in data.glob("muniment.db*"):
        shutil.copy(path, path.with_name(f"new-{path.name}"))
    for path in data.glob("muniment.db*"):
        path.with_name(f"new-{path.name}").rename(path)
    registry.assert_refuses("was replaced by another")
    assert registry.service.stop() == 0
    assert (data / "muniment.db-wal").stat().st_size > 0
    registry.service.start()
    registry.assert_all_there()


@needs_mounts
def test_nothing_is_acknowledged_while_another_volume_hides_the_data_directory(registry: Registry) -> None:
    with mounted(registry.service.data_dir):
        registry.assert_refuses("the file muniment.db was removed")
    registry.wait_until_ready_says(200)
    registry.write_often()
    registry.service.kill()
    registry.service.start()
    registry.assert_all_there()


@needs_mounts
def test_on_a_read_only_file_system_readyz_says_so_and_writes_go_on_when_it_is_writable(tmp_path: Path) -> None:
    with mounted(tmp_path) as volume, Service(tmp_path / "data") as service:
        registry = registry_of(service)
        service.kill()  # a log is left, without which SQLite opens nothing there
        volume.remount("ro")
        service.launch_and_listen()
        registry.assert_refuses("its file system is read-only")
        with pytest.raises(AssertionError, match="its file system is read-only"):
            asyncio.run(logged_in(service.url))
        registry.assert_all_there()
        volume.remount("rw")
        registry.wait_until_ready_says(200)
        registry.write_often()
        asyncio.run(logged_in(service.url))
        service.kill()
        service.start()
        registry.assert_all_there()


def test_without_its_block_directory_a_process_is_not_ready(registry: Registry) -> None:
    blocks = registry.service.data_dir / "blocks"
    aside = blocks.rename(blocks.with_name("aside"))
    registry.wait_until_ready_says(503, "the block store does not answer")
    blocks.mkdir()
    registry.wait_until_ready_says(503, "is its volume mounted?")
    blocks.rmdir()
    aside.rename(blocks)
    registry.wait_until_ready_says(200)
