"""`muniment tlog`, and how the log fares when its database is backed up, restored and copied."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from backing_up import done, run
from builders import TriggerDraft, deploy, register
from muniment.service.app import Application, build_context
from muniment.service.context import Context
from muniment.service.resources.log import operating, store
from muniment.service.resources.log.integrator import Integrator
from muniment.service.resources.log.mark import MARK_FILE
from muniment.service.resources.log.opening import KEY_FILE, NEXT_KEY_FILE
from muniment.service.running.settings import Settings
from muniment.service.storage.database import Database
from without_server import InProcess

NAME = "registry.example"
NAMED = {"MUNIMENT_TLOG_NAME": NAME}


def served(data: Path, environ: dict[str, str], work: Callable[[httpx2.AsyncClient], Any] | None = None) -> None:
    """Serve the registry in `data` for a while; the log takes a turn at its end."""

    async def serve() -> None:
        name = environ.get("MUNIMENT_TLOG_NAME", "")
        settings = replace(Settings(data_dir=data, log_level="error"), tlog_name=name)
        context: Context = build_context(settings)
        try:
            await context.database.migrate()
            transport = InProcess(Application(context))
            async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
                if work is not None:
                    await work(client)
            # What was stored in this second is due in the next one.
            context = replace(context, clock=Ahead(context.clock))
            await Integrator(context).turn()
        finally:
            await context.outgoing.close()
            await context.database.close()

    asyncio.run(serve())


class Ahead:
    """A clock that is a second ahead."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms() + 1_000

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def doubt(self) -> None:
        return None


async def one_trigger(client: httpx2.AsyncClient) -> None:
    await register(client, TriggerDraft(await deploy(client)))


async def another_trigger(client: httpx2.AsyncClient) -> None:
    await register(client, TriggerDraft(await deploy(client), version="2.0.0"))


def status(data: Path, environ: dict[str, str]) -> dict[str, Any]:
    return done("tlog", "status", data=data, **environ)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    served(tmp_path / "data", NAMED, one_trigger)
    return tmp_path / "data"


def test_the_state_is_shown(data: Path) -> None:
    (epoch,) = status(data, NAMED)["epochs"]
    assert (epoch["origin"], epoch["state"], epoch["size"], epoch["signedSize"]) == (f"{NAME}/log/1", "open", 4, 4)
    shown = run("tlog", "status", data=data, **NAMED).stdout
    assert f"{NAME}/log/1: open, 4 entries, 4 signed at 20" in shown
    assert "key at hand: ours" in shown
    assert (data / KEY_FILE).read_text() not in shown


def test_a_frozen_log_is_reported_and_resumed(data: Path) -> None:
    assert run("tlog", "freeze", data=data, **NAMED).stdout.startswith(f"{NAME}/log/1 is frozen, with 4 entries")
    assert "WARN  transparency log: it is frozen" in run("doctor", data=data, **NAMED).stdout.replace("warn", "WARN")
    again = run("tlog", "freeze", data=data, **NAMED)
    assert (again.exit_code, again.stderr) == (1, "Error: the log is frozen; only an open log is frozen\n")
    assert run("tlog", "resume", data=data, **NAMED).exit_code == 0
    assert status(data, NAMED)["epochs"][0]["state"] == "open"


def test_a_command_that_another_process_overtakes_says_so(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = operating.require_epoch

    async def overtaken(database: Database) -> store.Epoch:
        epoch = await seen(database)
        if epoch.state == "open":
            await database.write(lambda tx: store.freeze(tx, epoch, "another operator"))
        return epoch

    monkeypatch.setattr(operating, "require_epoch", overtaken)
    refused = run("tlog", "freeze", data=data, **NAMED)
    assert refused.exit_code == 1
    assert refused.stderr == (
        "Error: another process changed the log meanwhile: see `muniment tlog status`, then repeat the command\n"
    )
    assert status(data, NAMED)["epochs"][0]["why"] == "another operator"


def test_a_rotation_puts_the_next_key_in_place(data: Path) -> None:
    before = (data / KEY_FILE).read_text()
    rotated = run("tlog", "rotate", data=data, **NAMED)
    assert rotated.exit_code == 0, rotated.output
    assert rotated.stdout.startswith(f"{NAME}/log/2 is open, with 1 entry\n{NAME}/log/2+")
    assert (data / KEY_FILE).read_text() != before
    assert not (data / NEXT_KEY_FILE).exists()
    assert (data / KEY_FILE).stat().st_mode & 0o777 == 0o600
    served(data, NAMED)
    epochs = status(data, NAMED)["epochs"]
    assert [(each["state"], each["signedSize"]) for each in epochs] == [("open", 2), ("closed", 5)]


def test_a_backup_has_the_key_and_not_the_mark(data: Path, tmp_path: Path) -> None:
    done("backup", tmp_path / "backup", data=data)
    (snapshot,) = (tmp_path / "backup").glob("snapshot-*")
    assert (snapshot / KEY_FILE).read_bytes() == (data / KEY_FILE).read_bytes()
    assert not list((tmp_path / "backup").rglob(f"{MARK_FILE}*"))


def restored(data: Path, tmp_path: Path) -> Path:
    done("backup", tmp_path / "backup", data=data)
    done("restore", tmp_path / "backup", "--no-rotate", data=tmp_path / "new")
    return tmp_path / "new"


def test_a_restored_log_is_halted_until_a_person_decides(data: Path, tmp_path: Path) -> None:
    new = restored(data, tmp_path)
    assert (new / KEY_FILE).read_bytes() == (data / KEY_FILE).read_bytes()
    served(new, NAMED)
    (epoch,) = status(new, NAMED)["epochs"]
    assert epoch["state"] == "halted"
    assert "it was moved or restored" in epoch["why"]
    assert "transparency log: it is halted" in run("doctor", data=new, **NAMED).stdout
    seen = tmp_path / "seen"
    seen.write_text(asyncio.run(note_of(data)))
    resumed = run("tlog", "resume", "--seen", seen, data=new, **NAMED)
    assert resumed.exit_code == 0, resumed.output
    served(new, NAMED, another_trigger)
    (epoch,) = status(new, NAMED)["epochs"]
    assert (epoch["state"], epoch["signedSize"]) == ("open", 5)


async def note_of(data: Path) -> str:
    context = build_context(Settings(data_dir=data, log_level="error"))
    try:
        return (await context.database.fetch("SELECT note FROM tlog_epochs WHERE epoch = 1"))[0][0]
    finally:
        await context.outgoing.close()
        await context.database.close()


def test_a_restore_keeps_the_key_that_is_there(data: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir(mode=0o700)
    (tmp_path / "new" / KEY_FILE).write_text("ab" * 32)
    restored(data, tmp_path)
    assert (tmp_path / "new" / KEY_FILE).read_text() == "ab" * 32


def test_a_log_that_grows_under_a_name_is_not_copied(data: Path) -> None:
    refused = run("database", "copy", "database:", "sqlite:///copy.db", data=data, **NAMED)
    assert refused.exit_code == 1
    assert "run `muniment tlog freeze` before the copy" in refused.stderr
    assert run("tlog", "freeze", data=data, **NAMED).exit_code == 0
    own = {**NAMED, "MUNIMENT_DATABASE_URL": "sqlite:///copy.db"}
    assert run("database", "copy", "sqlite:///muniment.db", "database:", data=data, **own).exit_code == 0
    assert status(data, own)["epochs"][0]["state"] == "frozen"
    assert run("tlog", "resume", data=data, **own).exit_code == 0
    assert [status(data, each)["epochs"][0]["state"] for each in (own, NAMED)] == ["open", "frozen"]


def test_an_older_backup_in_the_old_place_is_halted_and_what_it_lost_is_named(data: Path, tmp_path: Path) -> None:
    done("backup", tmp_path / "backup", data=data)
    served(data, NAMED, another_trigger)
    for path in data.iterdir():  # a person makes room for the registry, and leaves what is of the host
        if path.is_dir():
            shutil.rmtree(path)
        elif not path.name.startswith("tlog-"):
            path.unlink()
    done("restore", tmp_path / "backup", "--no-rotate", data=data)
    served(data, NAMED, another_trigger)
    (epoch,) = status(data, NAMED)["epochs"]
    assert (epoch["state"], epoch["size"], epoch["signedSize"]) == ("halted", 4, 4)
    assert epoch["why"] == "this host has signed 5 entries, and the database has 4"
    assert "transparency log: it is halted" in run("doctor", data=data, **NAMED).stdout
    refused = run("tlog", "resume", "--nothing-published-since", data=data, **NAMED)
    assert refused.exit_code == 1
    assert "a tree of 5 entries was signed" in refused.stderr
    assert run("tlog", "begin", data=data, **NAMED).exit_code == 0
    served(data, NAMED)
    (new, old) = status(data, NAMED)["epochs"]
    assert [(each["state"], each["signedSize"]) for each in (new, old)] == [("open", 3), ("closed", 4)]
