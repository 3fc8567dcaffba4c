"""`muniment relayer` as a process at a real registry: one run, kills, two relayers, a dry run, an explanation."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

import warm
from builders import TriggerDraft, Wallet, cron, once
from guest_functions import INPUTS, bundle
from muniment.client import Bundle, KeySigner, Registry
from service import Service

GIVEN: dict[str, Any] = {
    "chainId": 8453, "token": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "amount": "1000000",
    "recipient": "0x1111111111111111111111111111111111111111", "fee": "10000",
}  # fmt: skip
# How long the intents of the function are good for.
LIFETIME_MS = 300_000
# These end a hang.
SECONDS_MAX = 120
# How often the relayers are killed in a long run; `make soak` does it a hundred times.
KILLS = int(os.environ.get("SOAK_ROUNDS", "20"))


@dataclass
class Site:
    """A registry, the files of relayers, and the CID of a function that transfers."""

    service: Service
    directory: Path
    cid: str
    http: httpx2.Client

    def config(self, name: str, **more: str) -> Path:
        """The file of a relayer with a key of its own."""
        path = self.directory / f"{name}.toml"
        if not path.exists():
            (self.directory / f"{name}.key").write_text(self.service.run("operators", "add", name))
            lines = {"registry": self.service.url, "operator_key_file": f"{name}.key", "state": f"{name}.db", **more}
            path.write_text("[relayer]\n" + "".join(f"{each} = {json.dumps(lines[each])}\n" for each in lines))
        return path

    def words(self, name: str, *words: str) -> list[str]:
        return ["relayer", "--config", str(self.config(name)), "--any", *words]

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return warm.run(*self.words(name, *words), timeout=SECONDS_MAX)

    def start(self, name: str, *words: str) -> warm.WarmProcess:
        with (self.directory / f"{name}.log").open("ab") as log:
            return warm.popen(self.words(name, *words), os.environ, stdout=log.fileno(), stderr=log.fileno())

    def sign(self, number: int = 1, **members: Any) -> str:
        """A trigger that is due now, and once."""
        given: dict[str, Any] = {
            "config": once(startDate=0, delta="1h"), "wallet": Wallet(number), "inputs": INPUTS["transfer"],
            "input": GIVEN, **members,
        }  # fmt: skip
        return self.post(TriggerDraft(self.cid, **given).signed())

    def post(self, body: dict[str, Any]) -> str:
        answer = self.http.post(f"{self.service.url}/triggers", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["sig"]

    def all(self, path: str, **parameters: Any) -> list[dict[str, Any]]:
        """All records of a listing."""
        found: list[dict[str, Any]] = []
        while page := self.get(path, limit=100, offset=len(found), **parameters):
            found += page
        return found

    def get(self, path: str, **parameters: Any) -> Any:
        answer = self.http.get(f"{self.service.url}{path}", params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Service(tmp_path / "data") as service, httpx2.Client(verify=False, timeout=60) as http:
        made = bundle("transfer", "B")
        with Registry(service.url, signer=KeySigner((7).to_bytes(32))) as registry:
            cid = str(registry.functions.deploy(Bundle(made.manifest, made.wasm)).cid)
        yield Site(service, tmp_path, cid, http)


def test_what_is_due_runs_once_and_its_intent_is_recorded(site: Site) -> None:
    sig = site.sign()
    for _ in range(2):
        done = site.run("relayer", "--once")
        assert done.returncode == 0, done.stderr
    (run,) = site.get("/executions", triggerSig=sig)
    assert (run["result"], run["status"]) == ("intents", "valid")
    assert [each["recorded"] for each in run["outputs"]] == [True]
    (intent,) = site.get("/intents", generation="all")
    assert (intent["hash"], intent["executionHash"]) == (run["outputs"][0]["hash"], run["hash"])
    assert [each["id"] for each in intent["logs"]] == [f"{run['hash']}/{n}" for n in range(len(run["logs"]))]


def test_a_dry_run_prints_and_records_nothing(site: Site) -> None:
    sig = site.sign()
    done = site.run("relayer", "--once", "--dry")
    assert done.returncode == 0, done.stderr
    (shown,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert shown["run"]["triggerSig"] == sig
    assert len(shown["intents"]) == 1
    assert site.get("/executions") == site.get("/intents", generation="all") == []
    assert not (site.directory / "relayer.db").exists()


def test_a_key_that_other_users_can_read_is_told(site: Site) -> None:
    site.config("relayer")
    key = site.directory / "relayer.key"
    for mode, is_told in ((0o640, True), (0o600, False)):
        key.chmod(mode)
        done = site.run("relayer", "--once")
        assert done.returncode == 0, done.stderr
        assert ("other users can read the operator key" in done.stderr) is is_told
        assert key.read_text().strip() not in done.stderr


def test_an_explanation_says_what_happened_and_when_the_next_run_is(site: Site) -> None:
    sig = site.sign(config=cron(schedule="0 0 1 1 *"))
    before = site.run("relayer", "explain", sig)
    assert before.returncode == 0, before.stderr
    shown = json.loads(before.stdout)
    assert shown["nextRun"].endswith("-01-01T00:00:00.000Z")
    assert any("is missing" in each for each in shown["sentences"])
    assert site.run("relayer", "--once").returncode == 0
    after = json.loads(site.run("relayer", "explain", sig).stdout)
    assert after["sentences"][-1] == "The registry has no run of it."
    assert not any("is missing" in each for each in after["sentences"])


def test_wrong_settings_are_named_on_one_line(site: Site) -> None:
    site.config("relayer")
    done = warm.run(*[each for each in site.words("relayer", "--once") if each != "--any"])
    assert done.returncode == 2
    assert "relayer.signers is not set" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_relayer_on_one_journal_is_refused(site: Site) -> None:
    first = warm.popen(site.words("relayer"), os.environ, stderr=subprocess.PIPE)
    assert first.stderr is not None
    try:
        while "following" not in first.stderr.readline():
            assert first.poll() is None
        refused = site.run("relayer", "--once")
        assert refused.returncode == 2
        assert "another relayer has the journal" in refused.stderr
        assert site.run("relayer", "explain", site.sign()).returncode == 0
    finally:
        first.send_signal(signal.SIGTERM)
        first.communicate(SECONDS_MAX)
    assert first.returncode == 0


def sign_often(site: Site, count: int) -> list[str]:
    """Sign four triggers a second, each due a second later; the last is due when this ends."""
    sigs: list[str] = []
    for n in range(count):
        start_ms = time.time_ns() // 1_000_000 + 1_000
        sigs.append(site.sign(1 + n % 10, version=f"{n}.0.0", config=once(startDate=start_ms, delta="1h")))
        time.sleep(0.25)
    time.sleep(1)
    return sigs


def kill_often(site: Site, name: str, kills: int, dice: random.Random) -> None:
    """Start a relayer and kill it at any moment, so many times: mostly while it runs, sometimes while it starts."""
    log = site.directory / f"{name}.log"
    for _ in range(kills):
        log.write_bytes(b"")
        process = site.start(name)
        try:
            if dice.random() < 0.8:
                until = time.monotonic() + SECONDS_MAX
                while b"following" not in log.read_bytes():
                    assert time.monotonic() < until, "the relayer does not start"
                    time.sleep(0.02)
            time.sleep(dice.uniform(0, 1.5))
            assert process.poll() is None, log.read_text()
        finally:
            process.kill()
            process.wait()


def killed(site: Site, *, kills: int, triggers: int) -> None:
    """Kill two relayers while four runs become due each second; then let each end by itself, and check."""
    names = ["one", "two"]
    for name in names:
        site.config(name)
    with ThreadPoolExecutor() as pool:
        signing = pool.submit(sign_often, site, triggers)
        killing = [pool.submit(kill_often, site, name, kills // 2, random.Random(name)) for name in names]
        for each in killing:
            each.result()
        sigs = signing.result()
    for name in names:
        done = site.run(name, "--once")
        assert done.returncode == 0, done.stderr
    check(site, sigs)


def check(site: Site, sigs: list[str]) -> None:
    """Each trigger has one verdict, of both relayers, with one intent, which is recorded; and no nonce has two."""
    runs = site.all("/executions")
    now_ms = time.time_ns() // 1_000_000
    assert sorted(each["triggerSig"] for each in runs) == sorted(sigs)
    assert {(each["result"], len(each["records"]), len(each["conflicts"])) for each in runs} == {("intents", 2, 0)}
    hashes = {output["hash"] for each in runs for output in each["outputs"]}
    assert len(hashes) == len(sigs)
    # A machine may be so slow that an intent comes after its deadline; then it is rightly kept back.
    late = {each["outputs"][0]["hash"] for each in runs if each["timestamp"] + LIFETIME_MS < now_ms}
    intents = site.all("/intents", generation="all")
    assert hashes - late <= {each["hash"] for each in intents} <= hashes
    assert len({(each["triggerSig"], each["settler"], each["nonce"]) for each in intents}) == len(intents)


def test_two_relayers_that_are_killed_lose_and_repeat_nothing(site: Site) -> None:
    killed(site, kills=2, triggers=4)


@pytest.mark.long
def test_two_relayers_that_are_killed_again_and_again_lose_and_repeat_nothing(site: Site) -> None:
    killed(site, kills=KILLS, triggers=2 * KILLS)
