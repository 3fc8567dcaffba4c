"""Backups of a running service, and the credentials that are good after a restore."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

import warm
from answers import answered, ok, target_of
from builders import Bundle, TriggerDraft, Wallet, api_key_of, deploy, log_in
from service import Service

BACKUPS = 4
# At least so many writes are acknowledged before each backup begins.
WRITES_BETWEEN = 30


async def muniment(*words: str | Path, data: Path) -> dict[str, Any]:
    """The summary of a command that succeeds, in JSON."""
    done = await asyncio.to_thread(warm.run, *words, "--json", data=data)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_sound(data: Path) -> None:
    verified = warm.run("verify", data=data)
    assert verified.returncode == 0, verified.stdout + verified.stderr


class Writers:
    """Clients of a service that write without a pause, and what they were promised."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.triggers: list[dict[str, Any]] = []
        self.functions: list[dict[str, Any]] = []

    @asynccontextmanager
    async def at_work(self) -> AsyncGenerator[None]:
        async with httpx2.AsyncClient(base_url=self.url, timeout=60) as client:
            key, cid = await api_key_of(client, Wallet()), await deploy(client)
            works = [self.register(client, cid, Wallet(number)) for number in (2, 3, 4)]
            tasks = [asyncio.create_task(work) for work in (*works, self.upload(client, key))]
            try:
                yield
                assert not [task for task in tasks if task.done()]
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def register(self, client: httpx2.AsyncClient, cid: str, wallet: Wallet) -> None:
        for number in count():
            trigger = TriggerDraft(cid, wallet, version=f"1.0.{number}").signed()
            answer = await answered(client, "POST", "/triggers", json=trigger)
            self.triggers.append(answer.json())

    async def upload(self, client: httpx2.AsyncClient, key: str) -> None:
        for number in count():
            files = Bundle(version=f"2.0.{number}").files
            answer = await answered(client, "POST", "/functions", files=files, headers={"x-api-key": key})
            self.functions.append(answer.json())

    async def wait_for_more(self) -> None:
        triggers, functions = len(self.triggers), len(self.functions)
        async with asyncio.timeout(60):
            while len(self.triggers) < triggers + WRITES_BETWEEN or len(self.functions) < functions + 3:
                await asyncio.sleep(0.01)


@pytest.mark.long
async def test_a_backup_has_every_write_acknowledged_before_it_and_all_of_it_is_sound(tmp_path: Path) -> None:
    backup, meanwhile = tmp_path / "backup", 0
    with Service(tmp_path / "data") as service:
        writers = Writers(service.url)
        async with writers.at_work():
            for number in range(BACKUPS):
                await writers.wait_for_more()
                triggers, functions = list(writers.triggers), list(writers.functions)
                summary = await muniment("backup", backup, data=tmp_path / "data")
                meanwhile += len(writers.triggers) - len(triggers)
                assert summary["triggers"] >= len(triggers)
                assert summary["functions"] > len(functions)  # one more that the triggers are made for
                restored = await muniment("restore", backup, "--rotate", data=tmp_path / f"restored{number}")
                assert (restored["triggers"], restored["functions"]) == (summary["triggers"], summary["functions"])
                await assert_there(tmp_path / f"restored{number}", triggers, functions)
    assert meanwhile, "writes went on"


async def assert_there(data: Path, triggers: list[dict[str, Any]], functions: list[dict[str, Any]]) -> None:
    """Everything is served as it was promised, and every hash and signature holds."""
    await asyncio.to_thread(assert_sound, data)
    with Service(data) as service:
        for path, name, promised in (("/triggers", "sig", triggers), ("/functions", "CID", functions)):
            shown = {each[name]: each async for each in pages(service.url, path)}
            assert {each[name]: shown.get(each[name]) for each in promised} == {each[name]: each for each in promised}
        async with httpx2.AsyncClient(base_url=service.url) as client:
            for function in functions[-3:]:
                assert (await client.get(f"/functions/{function['CID']}/wasm")).status_code == 200


async def pages(url: str, path: str) -> AsyncGenerator[dict[str, Any]]:
    """Every row of a listing, along its next links."""
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        target: str | None = f"{path}?limit=100"
        while target:
            answer = ok(await client.get(target))
            for each in answer.json():
                yield each
            target = target_of(answer) if answer.json() else None


class Credentials:
    """What a user has before a backup is made, what is rotated out and used after it."""

    key: str
    token: str
    newer_key: str
    login: dict[str, str]

    async def before(self, client: httpx2.AsyncClient) -> None:
        self.token = await log_in(client, Wallet())
        self.key = ok(await client.get("/users/api-key", headers={"x-auth-token": self.token})).json()["apiKey"]
        nonce = ok(await client.post("/users/nonce", json={"address": Wallet().address})).json()["nonce"]
        self.login = {"address": Wallet().address, "signature": Wallet().sign_text(nonce)}

    async def after(self, client: httpx2.AsyncClient) -> None:
        """The key is rotated out at once, and a login under the nonce uses it up."""
        headers = {"x-auth-token": self.token}
        answer = await client.post("/users/api-key/rotate", json={"graceSeconds": 0}, headers=headers)
        self.newer_key = answer.json()["apiKey"]
        assert await upload(client, self.key) == 403
        assert await upload(client, self.newer_key) == 200
        assert (await client.post("/users/authenticate", json=self.login)).status_code == 200
        assert (await client.post("/users/authenticate", json=self.login)).status_code == 401


async def upload(client: httpx2.AsyncClient, key: str) -> int:
    return (await client.post("/functions", files=Bundle().files, headers={"x-api-key": key})).status_code


@pytest.fixture
async def restored(tmp_path: Path) -> Credentials:
    """Credentials of a registry that was backed up, went on, and was restored to `kept` and to `ended`."""
    credentials = Credentials()
    with Service(tmp_path / "data") as service:
        async with httpx2.AsyncClient(base_url=service.url) as client:
            await credentials.before(client)
            await muniment("backup", tmp_path / "backup", data=tmp_path / "data")
            await credentials.after(client)
    await muniment("restore", tmp_path / "backup", "--no-rotate", data=tmp_path / "kept")
    await muniment("restore", tmp_path / "backup", "--rotate", data=tmp_path / "ended")
    return credentials


async def test_a_restored_backup_revives_credentials_that_were_good_at_its_time(
    restored: Credentials, tmp_path: Path
) -> None:
    with Service(tmp_path / "kept") as service:
        async with httpx2.AsyncClient(base_url=service.url) as client:
            assert await upload(client, restored.key) == 200, "which was rotated out after the backup"
            assert await upload(client, restored.newer_key) == 403
            assert (await client.post("/users/authenticate", json=restored.login)).status_code == 200, "once more"
            headers = {"x-auth-token": restored.token}
            assert ok(await client.get("/users/api-key", headers=headers)).json()["apiKey"] == restored.key
            answer = await client.post("/users/api-key/rotate", json={"graceSeconds": 0}, headers=headers)
            assert answer.json()["apiKey"] == restored.newer_key, "rotating a key again comes round to the same one"


async def test_rotating_ends_every_key_token_and_nonce_of_before(restored: Credentials, tmp_path: Path) -> None:
    with Service(tmp_path / "ended") as service:
        async with httpx2.AsyncClient(base_url=service.url) as client:
            for key in (restored.key, restored.newer_key):
                assert await upload(client, key) == 403
            old = await client.get("/users/api-key", headers={"x-auth-token": restored.token})
            assert old.status_code == 401
            assert (await client.post("/users/authenticate", json=restored.login)).status_code == 401
            token = await log_in(client, Wallet())
            headers = {"x-auth-token": token}
            new = ok(await client.get("/users/api-key", headers=headers)).json()["apiKey"]
            assert await upload(client, new) == 200
            again = ok(await client.post("/users/api-key/rotate", json={"graceSeconds": 0}, headers=headers)).json()
            assert again["apiKey"] not in {restored.key, restored.newer_key, new}
            for key in (restored.key, restored.newer_key, new):
                assert await upload(client, key) == 403, "none comes round"
