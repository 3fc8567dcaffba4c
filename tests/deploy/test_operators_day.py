"""An operator's day: install, serve, scrape, back up, upgrade under load, restore; the doctor looks at each step."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from releases import MIGRATION, NEXT, THIS, build, build_next, environment_of, install

from builders import deploy
from loading import Load
from ports import free_port
from postgres import Cluster
from service import Service

# These say something about the machine of the test, and not about the registry.
_OF_THE_MACHINE: Final = {"fsync", "disk", "inodes", "file system", "descriptors"}
_SECRET: Final = "5e" * 32
_TRIGGERS_MIN: Final = 30


@dataclass
class Place:
    """A registry: its data directory, and the URL of its database on PostgreSQL."""

    data_dir: Path
    python: Path
    database_url: str = ""

    @property
    def variables(self) -> dict[str, str]:
        if not self.database_url:
            return {}
        return {"MUNIMENT_DATABASE_URL": self.database_url, "MUNIMENT_SECRET": _SECRET}

    def service(self, port: int) -> Service:
        return Service(self.data_dir, port=port, python=self.python, environment=self.variables)

    def run(self, *words: str | Path, status_max: int = 0) -> str:
        """A command of the installed release; its output."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
        command = [self.python, "-m", "muniment", *words, "--data-dir", self.data_dir]
        done = subprocess.run(
            command, env=clean | self.variables, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode <= status_max, done.stdout + done.stderr
        return done.stdout

    def examine(self, url: str = "") -> list[str]:
        """The checks that are not in order, but for what the doctor says about this machine."""
        said = self.run("doctor", "--json", *(["--url", url] if url else []), status_max=2)
        findings: list[dict[str, Any]] = json.loads(said)["findings"]
        checks = [each["check"] for each in findings if each["level"] != "ok"]
        return [check for check in checks if check not in _OF_THE_MACHINE]


@pytest.fixture(params=["sqlite", "postgres"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster | None]:
    """The PostgreSQL of the registry; None for one on SQLite."""
    if request.param == "sqlite":
        yield None
        return
    with Cluster() as started:
        yield started


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheels of this release and of the next one."""
    folder = tmp_path_factory.mktemp("wheels")
    return build(folder / "this"), build_next(folder / "next")


async def test_the_doctor_finds_nothing_on_an_operators_day(
    cluster: Cluster | None, wheels: tuple[Path, Path], tmp_path: Path
) -> None:
    this, following = wheels
    place = Place(tmp_path / "data", environment_of(this, tmp_path / "venv"))
    if cluster:
        place.database_url = await cluster.create_database("day")
        place.run("migrate")
    port = free_port()
    service = place.service(port).start()
    try:
        operator_key = place.run("operators", "add", "day").strip()
        async with httpx2.AsyncClient(base_url=service.url, timeout=60, trust_env=False) as client:
            cid = await deploy(client)
        async with Load([service.url], cid, operator_key) as load:
            await load.until(lambda: load.is_of_every_kind(_TRIGGERS_MIN))
            assert version(service) == THIS
            assert place.examine(service.url) == ["backup"]
            backup = back_up(place, cluster, tmp_path / "backup")
            assert place.examine(service.url) == []
            saved = len(load.triggers)
            install(place.python, following)
            if cluster:  # a service does not migrate: the operator does, while the release before serves
                assert MIGRATION in await asyncio.to_thread(place.run, "migrate")
            before = len(load.triggers)
            await load.until(lambda: len(load.triggers) > before)
            assert await asyncio.to_thread(service.stop) == 0
            service = await asyncio.to_thread(place.service(port).start)
            before = len(load.triggers)
            await load.until(lambda: len(load.triggers) > before + _TRIGGERS_MIN)
            assert version(service) == NEXT
            assert place.examine(service.url) == []
        await load.check()
        assert saved < len(load.triggers)
    finally:
        service.stop()
    assert place.examine() == []
    restored = await restore(place, cluster, backup, tmp_path / "restored")
    assert "triggers" in restored.run("verify")
    examine_restored(restored, cluster, list(load.triggers), tmp_path / "next-backup")


def examine_restored(restored: Place, cluster: Cluster | None, triggers: list[str], target: Path) -> None:
    """Serve the restored registry, and back it up in turn."""
    with restored.service(0) as service:
        assert restored.examine(service.url) == ["backup"]
        back_up(restored, cluster, target)
        assert restored.examine(service.url) == []
        # A page of the listing: what was acknowledged before the backup is there.
        sigs = {each["sig"] for each in httpx2.get(f"{service.url}/triggers?limit=100&sort=1").json()}
        assert set(triggers[:_TRIGGERS_MIN]) <= sigs


def version(service: Service) -> str:
    """What the metrics say about the release that runs."""
    text = httpx2.get(f"{service.url}/metrics").text
    (found,) = re.findall(r'^muniment_build_info\{version="([^"]+)"\} 1$', text, re.MULTILINE)
    assert "\nmuniment_ready 1\n" in text
    return found


def back_up(place: Place, cluster: Cluster | None, target: Path) -> Path:
    if not cluster:
        place.run("backup", target)
        return target
    dump = cluster.data.parent / f"{target.name}.sql"  # where the user of the server can read it
    dump.write_text(cluster.run("pg_dump", "--no-owner", place.database_url))
    (place.data_dir / "last-backup").touch()  # as the doctor asks of other tools
    return dump


async def restore(place: Place, cluster: Cluster | None, backup: Path, data_dir: Path) -> Place:
    """The registry of a backup in another place, under the release that is installed now."""
    restored = Place(data_dir, place.python)
    if cluster:
        restored.database_url = await cluster.create_database("restored")
        cluster.run("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={backup}", restored.database_url)
    else:
        restored.run("restore", backup, "--no-rotate")
    assert MIGRATION in restored.run("migrate")  # the backup is of the release before
    if cluster:
        restored.run("epoch", "renew")
    return restored
