"""SIGKILL at any moment: every acknowledged write stays, and the service starts again without repair."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import warm
from answers import ok
from builders import Bundle, TriggerDraft, Wallet, signed_in
from ports import free_port
from service import Service

HERE = Path(__file__).parent
# `make soak` kills it more often.
ROUNDS = 10
WRITES = 500
# A round ends somewhere between the first instruction of the service and this long after it is ready.
ROUND_SECONDS_MAX = 0.4
TRIGGER_WRITERS = 3
# An upload is several files that must reach the disk, and has to fit between two kills.
FUNCTIONS_MIN = 5
# This ends a hang; when there is nothing else to do the rounds take half a minute.
SECONDS_MAX = 600

pytestmark = pytest.mark.long


def trigger_requests(cid: str, wallet: Wallet) -> Iterator[dict[str, Any]]:
    headers = {"content-type": "application/json"}
    for number in range(2_000):
        body = TriggerDraft(cid, wallet=wallet, version=f"1.0.{number}").signed()
        yield {"path": "/triggers", "headers": headers, "body": json.dumps(body)}


def function_requests(api_key: str) -> Iterator[dict[str, Any]]:
    boundary = "a-boundary"
    headers = {"content-type": f"multipart/form-data; boundary={boundary}", "x-api-key": api_key}
    for number in range(1_000):
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode() + data
            for _, (name, data, _) in Bundle(version=f"2.0.{number}").files
        ]
        body = b"\r\n".join([*parts, f"--{boundary}--\r\n".encode()])
        yield {"path": "/functions", "headers": headers, "body": body.decode("latin-1")}


@contextmanager
def writing(port: int, folder: Path, name: str, requests: Iterator[dict[str, Any]]) -> Generator[Path]:
    """A process that writes; where it notes its answers."""
    asked, answers = folder / f"{name}.requests", folder / f"{name}.answers"
    asked.write_text("".join(json.dumps(request) + "\n" for request in requests))
    command = [sys.executable, str(HERE / "writer.py"), str(port), str(asked), str(answers)]
    with subprocess.Popen(command) as process:
        try:
            yield answers
        finally:
            process.kill()


def acknowledged(answers: list[Path]) -> list[tuple[int, Any]]:
    """Statuses and bodies; a line that the end of its writer cut off is not one."""
    texts = [path.read_text() for path in answers if path.exists()]
    lines = [line for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [(status, body) for _, status, body in map(json.loads, lines)]


def is_enough(written: list[tuple[int, Any]]) -> bool:
    return len(written) >= WRITES and sum("CID" in record for _, record in written) > FUNCTIONS_MIN


def kill_again_and_again(service: Service, answers: list[Path], dice: random.Random) -> int:
    rounds, deadline = 0, time.monotonic() + SECONDS_MAX
    while rounds < ROUNDS or not is_enough(acknowledged(answers)):
        assert time.monotonic() < deadline, "the service hardly gets anything done"
        service.launch()
        if dice.random() < 0.2:
            time.sleep(dice.uniform(0, 2 * ROUND_SECONDS_MAX))  # while it starts
        else:
            service.wait_until_ready()
            time.sleep(dice.uniform(0, ROUND_SECONDS_MAX))
        service.kill()
        rounds += 1
    return rounds


def test_no_acknowledged_write_is_lost_however_often_the_service_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("CRASH_SEED") or secrets.randbits(32))
    print(f"CRASH_SEED={seed}")
    port = free_port()
    service = Service(tmp_path / "data", port=port)
    with service:
        api_key, cid = asyncio.run(signed_in(service.url))
    with ExitStack() as writers:
        answers = [
            writers.enter_context(writing(port, tmp_path, f"triggers{number}", trigger_requests(cid, Wallet(number))))
            for number in range(1, TRIGGER_WRITERS + 1)
        ]
        answers.append(writers.enter_context(writing(port, tmp_path, "functions", function_requests(api_key))))
        rounds = kill_again_and_again(service, answers, random.Random(seed))
    written = acknowledged(answers)
    print(f"{len(written)} writes acknowledged in {rounds} rounds")
    assert {status for status, _ in written} == {200}
    assert_sound(tmp_path / "data")
    with service:
        assert_all_there(service.url, [record for _, record in written])


def assert_all_there(url: str, records: list[dict[str, Any]]) -> None:
    with httpx2.Client(base_url=url) as client:
        for record in records:
            path = f"/functions/{record['CID']}" if "CID" in record else f"/triggers/{record['sig']}"
            assert ok(client.get(path)).json() == record


def assert_sound(data_dir: Path) -> None:
    """The store opens by itself; every block and signature in it is what its name says."""
    verified = warm.run("verify", data=data_dir, timeout=300)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    with closing(sqlite3.connect(data_dir / "muniment.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_client_that_was_not_answered_asks_again_and_gets_the_record(tmp_path: Path) -> None:
    """The process ends by SIGKILL between the commit and the answer."""
    mark = tmp_path / "die"
    program = [str(HERE / "dies_after_commit.py")]
    dying = Service(tmp_path / "data", program=program, environment={"DIE_WHEN_THERE_IS": str(mark)})
    with dying:
        _, cid = asyncio.run(signed_in(dying.url))
        mark.touch()
        body = TriggerDraft(cid).signed()
        with pytest.raises(httpx2.TransportError):
            httpx2.post(f"{dying.url}/triggers", json=body)
        assert dying.wait() == -signal.SIGKILL
    with closing(sqlite3.connect(tmp_path / "data" / "muniment.db")) as database:
        ((stored,),) = database.execute("SELECT record FROM triggers").fetchall()
    with Service(tmp_path / "data") as service:
        again = httpx2.post(f"{service.url}/triggers", json=body)
        assert (again.status_code, again.text) == (200, stored)
        assert ok(httpx2.get(f"{service.url}/triggers")).json() == [again.json()]
