"""The programs of docs/use/client.md and docs/use/first-steps.md, run as they are printed against a service."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import httpx2
import pytest

import warm
from answers import ok
from builders import TriggerDraft, Wallet, deploy, register
from intent_bodies import intent_body, operations_body, proposal_body
from muniment.client import Registry
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.types import AnyNewIntent
from service import Service

ROOT = Path(__file__).parents[2]


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "use" / page).read_text("utf-8"), re.DOTALL)


FIRST, DUE, PROVE, ERRORS, FOLLOW, RELAYER, RECORD, SOLVER = programs("client.md")
[LIST] = programs("first-steps.md")
PRINTED_URL = "http://127.0.0.1:8787"
SETTLER = "0x609d831C0068844e11eF85a273c7F356212Fd6D1"
SECONDS_MAX = 60.0
OWNER = Wallet(9)


def written(program: str, folder: Path, url: str) -> Path:
    """The program as a file, with the URL of the service in place of the one that the page prints."""
    assert program.count(PRINTED_URL) == 1
    path = folder / "program.py"
    path.write_text(program.replace(PRINTED_URL, url))
    return path


def run(program: str, folder: Path, url: str, **more: str) -> list[str]:
    """The lines that a program prints until it ends."""
    path = written(program, folder, url)
    done = warm.run(program=[str(path)], directory=folder, environment=more, timeout=SECONDS_MAX)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@contextmanager
def running(program: str, folder: Path, url: str, **more: str) -> Generator[None]:
    """A program that runs for ever; its lines go to the file `out`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
    path = written(program, folder, url)
    with (folder / "out").open("a") as out:
        process = warm.popen(
            [], environment | more, [str(path)], stdout=out.fileno(), stderr=out.fileno(), directory=folder
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def until_lines(folder: Path, expected: list[str]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while (said := (folder / "out").read_text().splitlines()) != expected:
        assert time.monotonic() < deadline, said
        time.sleep(0.05)


def until_kept(folder: Path, name: str, before: bytes = b"") -> bytes:
    """The content of a checkpoint, once it is another than before."""
    deadline = time.monotonic() + SECONDS_MAX
    path = folder / name
    while not path.exists() or path.read_bytes() == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return path.read_bytes()


@pytest.fixture
def service(tmp_path: Path) -> Generator[Service]:
    """A service with a transparency log."""
    with Service(tmp_path / "data", environment={"MUNIMENT_TLOG_NAME": "registry.example"}) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a reader of the page works."""
    made = tmp_path / "reader"
    made.mkdir()
    return made


def test_the_first_program_deploys_signs_creates_follows_and_deactivates(service: Service, folder: Path) -> None:
    shutil.copytree(ROOT / "src" / "muniment" / "cli" / "sample", folder / "bundle")
    lines = run(FIRST, folder, service.url, MUNIMENT_PRIVATE_KEY=OWNER.key.hex())
    said = dict(line.split(" ", 1) for line in lines if line.split()[0] in {"deployed", "created", "followed", "ended"})
    assert said["created"] == said["followed"]
    found = ok(httpx2.get(f"{service.url}/triggers/{said['created']}")).json()
    assert (found["signer"], found["functionCid"]) == (OWNER.address, said["deployed"])
    assert said["ended"] == f"by {found['deactivateSig']}"
    assert f"Function {said['deployed']} may run" in "\n".join(lines)


async def test_the_program_of_the_first_steps_lists_active_triggers(service: Service, folder: Path) -> None:
    async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
        cid = await deploy(client)
        await register(client, TriggerDraft(cid, OWNER))
    assert run(LIST, folder, service.url) == [f"{OWNER.address} {cid} Every six hours"]


async def test_the_program_for_runs_shows_when_the_next_ones_are_due(service: Service, folder: Path) -> None:
    async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
        sig = (await register(client, TriggerDraft(await deploy(client), OWNER)))["sig"]
    due = [re.fullmatch(rf"{sig[:10]} is due at (.+)", line) for line in run(DUE, folder, service.url)]
    times = [datetime.fromisoformat(match[1]) for match in due if match]
    assert len(times) == len(due) == 3
    assert [later - earlier for earlier, later in pairwise(times)] == [timedelta(hours=6)] * 2


async def test_the_program_for_proofs_says_where_a_trigger_is_in_the_log(service: Service, folder: Path) -> None:
    async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
        sig = (await register(client, TriggerDraft(await deploy(client), OWNER)))["sig"]
    deadline = time.monotonic() + SECONDS_MAX
    while (lines := run(PROVE, folder, service.url)) == [f"{sig} is not there yet; ask again in 2 seconds"]:
        assert time.monotonic() < deadline
    [line] = lines
    assert re.fullmatch(rf"{sig} is at index \d+ of \d+ entries of registry\.example/log/1", line)


def test_the_program_for_errors_names_what_is_wrong(service: Service, folder: Path) -> None:
    assert run(ERRORS, folder, service.url) == ["there is no such trigger"]
    url = service.url
    service.stop()
    [line] = run(ERRORS, folder, url)
    assert line.startswith(f"{url} does not answer: ")
    assert line.endswith(" - nothing was sent")


async def test_the_follower_goes_on_after_its_own_end(service: Service, folder: Path) -> None:
    async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
        cid = await deploy(client)
        first = (await register(client, TriggerDraft(cid, OWNER)))["sig"]
        with running(FOLLOW, folder, service.url):
            until_lines(folder, [f"new {first}"])
            kept = until_kept(folder, "triggers.cursor")
        second = (await register(client, TriggerDraft(cid, OWNER, version="2.0.0")))["sig"]
        with running(FOLLOW, folder, service.url):
            until_lines(folder, [f"new {first}", f"new {second}"])
            until_kept(folder, "triggers.cursor", kept)
            third = (await register(client, TriggerDraft(cid, OWNER, version="3.0.0")))["sig"]
            until_lines(folder, [f"new {each}" for each in (first, second, third)])


async def test_the_follower_says_what_to_do_after_a_restore(service: Service, folder: Path) -> None:
    async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
        await register(client, TriggerDraft(await deploy(client), OWNER))
    with running(FOLLOW, folder, service.url):
        until_kept(folder, "triggers.cursor")
    service.run("epoch", "renew")
    assert run(FOLLOW, folder, service.url) == [
        "the registry was restored or moved: remove triggers.cursor and start again"
    ]


async def test_the_relayer_learns_of_new_triggers_and_of_deactivations(service: Service, folder: Path) -> None:
    async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
        cid = await deploy(client)
        first = (await register(client, TriggerDraft(cid, OWNER)))["sig"]
        with running(RELAYER, folder, service.url):
            until_lines(folder, ["active 1"])
            await register(client, TriggerDraft(cid, OWNER, version="2.0.0"))
            until_lines(folder, ["active 1", "active 2"])
            body = {"triggerSigs": [first], "signature": OWNER.sign_deactivation([first])}
            assert (await client.post("/triggers/deactivate", json=body)).status_code == 204
            until_lines(folder, ["active 1", "active 2", "active 1"])


def test_the_operator_records_an_intent_and_logs_a_line(service: Service, folder: Path) -> None:
    [line] = run(RECORD, folder, service.url, OPERATOR_KEY=service.operator_key())
    said, hash_, status = line.split()
    assert (said, status) == ("recorded", "created")
    logs = ok(httpx2.get(f"{service.url}/intents/{hash_}")).json()["logs"]
    assert [each["data"] for each in logs] == ["waits for offers"]


async def test_the_solver_offers_to_intents_of_registered_triggers_and_to_no_other(
    service: Service, folder: Path
) -> None:
    key = service.operator_key()
    async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
        sig = (await register(client, TriggerDraft(await deploy(client), OWNER)))["sig"]
    fees = [{"token": OWNER.address, "amount": "5000"}]
    bodies = [
        intent_body(1, settler=SETTLER, configSig=sig, maxFees=fees),
        operations_body(2, settler=SETTLER, triggerSig=sig),
        intent_body(
            3, settler=SETTLER, configSig=TriggerDraft("QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ").signed()["sig"]
        ),
        intent_body(4, settler=SETTLER),  # these bytes are no signature at all
        intent_body(5, settler=SETTLER, configSig=sig, proposals=[proposal_body(each) for each in range(1_000)]),
    ]
    full = "an intent has at most 1000 proposals"
    solver = {"OPERATOR_KEY": key, "SOLVER_KEY": Wallet(10).key.hex()}
    with Registry(service.url, operator_key=key, chains={8453: SETTLER}) as registry:
        known = [registry.intents.put(decode_record(body, AnyNewIntent)).hash for body in bodies]
        with running(SOLVER, folder, service.url, **solver):
            until_lines(folder, [full, "answered 5"])
            kept = until_kept(folder, "solver.cursor")
        late = registry.intents.put(decode_record(intent_body(6, settler=SETTLER, configSig=sig), AnyNewIntent)).hash
        with running(SOLVER, folder, service.url, **solver):
            until_lines(folder, [full, "answered 5", "answered 1"])
            until_kept(folder, "solver.cursor", kept)
        found = [registry.intents.get(each) for each in (*known, late)]  # which proves each offer's signature
    offers = [[each for each in intent.proposals if each.solver == Wallet(10).address] for intent in found]
    assert [[[*each.fees] for each in some] for some in offers] == [[["1000"]], [[]], [], [], [], [[]]]
    assert [len(each.logs) for each in found] == [1, 1, 0, 0, 1, 1]
