"""A service whose files cannot grow: writes get 503 with Retry-After, reads are served, and it recovers by itself."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import warm
from answers import ok, until_ready
from builders import Bundle, TriggerDraft, Wallet, api_key_of, signed_in
from mounts import mounted, needs_mounts
from service import Service


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path / "data") as started:
        yield started


def limit_files(service: Service, size: int) -> None:
    """Let no file grow beyond `size` bytes: writing fails with EFBIG, as it does with ENOSPC on a full disk."""
    resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.parametrize("size", [0, 100])
def test_on_a_full_disk_creates_are_503_and_all_is_well_when_there_is_room(serving: Service, size: int) -> None:
    api_key, cid = asyncio.run(signed_in(serving.url))
    trigger, bundle = TriggerDraft(cid).signed(), Bundle(version="2.0.0", description="d" * 900)
    with httpx2.Client(base_url=serving.url, headers={"x-api-key": api_key}) as client:
        limit_files(serving, size)
        for _ in range(3):
            refused = client.post("/triggers", json=trigger)
            assert (refused.status_code, refused.json()["code"]) == (503, "database-unavailable")
            assert int(refused.headers["retry-after"]) > 0
            refused = client.post("/functions", files=bundle.files)
            assert (refused.status_code, refused.json()["code"]) == (503, "storage-unavailable")
            assert int(refused.headers["retry-after"]) > 0
        assert client.get(f"/functions/{cid}").status_code == 200
        assert ok(client.get(f"/functions/{cid}/wasm")).content == Bundle().wasm
        assert client.get(f"/triggers/{trigger['sig']}").status_code == 404
        assert len(client.get("/functions").json()) == 1

        limit_files(serving, resource.RLIM_INFINITY)
        record = client.post("/triggers", json=trigger)
        assert record.status_code == 200
        assert ok(client.get(f"/triggers/{trigger['sig']}")).json() == record.json()
        function = client.post("/functions", files=bundle.files)
        assert function.status_code == 200
        assert ok(client.get(f"/functions/{function.json()['CID']}/manifest")).content == bundle.manifest
    assert serving.stop() == 0
    assert warm.run("verify", data=serving.data_dir, timeout=300).returncode == 0


def test_an_upload_that_does_not_fit_in_memory_is_503_on_a_full_disk(serving: Service) -> None:
    api_key, _ = asyncio.run(signed_in(serving.url))
    large = Bundle(version="2.0.0", wasm=Bundle().wasm + b"\0\x80\x80\x80\1\0" + bytes(2**21 - 1))
    with httpx2.Client(base_url=serving.url, headers={"x-api-key": api_key}) as client:
        limit_files(serving, 0)
        refused = client.post("/functions", files=large.files)
        assert (refused.status_code, refused.json()["code"]) == (503, "storage-unavailable")
        limit_files(serving, resource.RLIM_INFINITY)
        assert client.post("/functions", files=large.files).status_code == 200
    assert list((serving.data_dir / "blocks" / "tmp").iterdir()) == []


@needs_mounts
def test_a_stranger_who_fills_the_disk_leaves_room_for_deactivations_and_log_ins(tmp_path: Path) -> None:
    """On a disk of 64 MiB: an eighth is the reserve, and uploads end at twice the reserve."""
    owner, stranger, disk = Wallet(), Wallet(66), mounted(tmp_path, mebibytes=64)
    with disk, Service(tmp_path / "data") as service, httpx2.Client(base_url=service.url) as client:
        api_key, cid = asyncio.run(signed_in(service.url))
        consent = ok(client.post("/triggers", json=TriggerDraft(cid, owner).signed())).json()
        for number in itertools.count(1):
            section = b"\0\x80\x80\x80\2\0" + os.urandom(4 * 2**20 - 1)  # else its blocks were stored once
            large = Bundle(version=f"{number}.1.0", wasm=Bundle().wasm + section)
            refused = client.post("/functions", files=large.files, headers={"x-api-key": api_key})
            if refused.status_code != 200:
                assert (refused.status_code, refused.json()["code"]) == (503, "disk-almost-full")
                break
        with (tmp_path / "others").open("wb") as file:  # most of what is left, so that few creates fill the rest
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(tmp_path).free - 9 * 2**20)
        for number in itertools.count(1):
            draft = TriggerDraft(cid, stranger, version=f"{number}.0.0", description="d" * 1_000)
            refused = client.post("/triggers", json=draft.signed())
            if refused.status_code != 200:
                assert (refused.status_code, refused.json()["code"]) == (503, "disk-almost-full")
                break
        until_ready(client)
        assert asyncio.run(signed_in_again(service.url)), "an owner logs in"
        end = {"triggerSigs": [consent["sig"]], "signature": owner.sign_deactivation([consent["sig"]])}
        assert client.post("/triggers/deactivate", json=end).status_code == 204
        assert service.stop() == 0
        assert warm.run("verify", data=service.data_dir, timeout=300).returncode == 0


async def signed_in_again(url: str) -> str:
    async with httpx2.AsyncClient(base_url=url) as client:
        return await api_key_of(client, Wallet(67))
