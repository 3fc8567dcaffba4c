"""`muniment relayer` as a process at a real registry: one run, kills, two relayers, a dry run, an explanation."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import warm
from builders import cron, once
from guest_functions import bundle
from guest_modules import CHASE, module
from muniment.client import Bundle, KeySigner, Registry
from provider_node import MadeChain, ProviderNode
from relayer_attacks import HONEST, PING, event_of
from relayer_site import SECONDS_MAX, Site, new_site

# How long the intents of the function are good for.
LIFETIME_MS = 300_000
# How often the relayers are killed in a long run; `make soak` does it a hundred times.
KILLS = int(os.environ.get("SOAK_ROUNDS", "20"))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with new_site(tmp_path) as made:
        yield made


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


def test_a_single_step_ends_in_order_and_keeps_the_run_that_it_was_making(site: Site) -> None:
    # Dependent loads: its fuel lasts for a minute at least.
    made = bundle("endless", "B")
    with Registry(site.service.url, signer=KeySigner((7).to_bytes(32))) as registry:
        cid = str(registry.functions.deploy(Bundle(made.manifest, module(CHASE, pages=1024))).cid)
    sig = site.sign(cid=cid, inputs={}, input={})
    process = site.start("relayer", "--once")
    site.wait_until(
        lambda: "In the journal the run of" in site.run("relayer", "explain", sig).stdout, "the run is not planned"
    )
    process.terminate()
    assert process.wait(SECONDS_MAX) == 1, site.log()
    assert [line for line in site.log().splitlines() if "error" in line.lower() or "Traceback" in line] == []
    assert "is planned and has no result yet" in site.run("relayer", "explain", sig).stdout


@dataclass
class Course:
    """What became due at two relayers that were killed: triggers that are due once, events, and a tick each minute."""

    site: Site
    chain: MadeChain
    events: str
    ticking: str
    began_s: float = field(default_factory=time.time)
    sigs: list[str] = field(default_factory=list[str])
    # The block and the index of each event.
    added: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def add_often(self, count: int) -> None:
        """Sign four triggers a second, each due a second later, with an event each; the last are due when this ends."""
        time.sleep(1)  # an event in the second of the registration is too early
        for n in range(count):
            start_ms = time.time_ns() // 1_000_000 + 1_000
            once_due = once(startDate=start_ms, delta="1h")
            self.sigs.append(self.site.sign(1 + n % 10, version=f"{n}.0.0", config=once_due))
            block = int(self.chain.add(HONEST, [PING])["blockNumber"], 16)
            index = sum(each == self.chain.hash(block) for each, _ in self.added)
            self.added.append((self.chain.hash(block), index))
            time.sleep(0.25)
        time.sleep(4)  # a run reads a block that has another one on top

    def ticks(self) -> set[int]:
        """The minutes that were due, in milliseconds, but for the first and the last one when they are doubtful."""
        first, last = int(self.began_s // 60) + 1, int((time.time() - 5) // 60)
        return {60_000 * minute for minute in range(first, last + 1)}


@contextmanager
def course(directory: Path) -> Generator[Course]:
    chain = MadeChain()
    with ProviderNode(chain) as node, new_site(directory, {chain.id: [node.url]}) as site:
        ticks = cron(schedule="* * * * *", delta="5m")
        ticking = site.sign(11, cid=site.function("nothing"), config=ticks, inputs={}, input={})
        yield Course(site, chain, site.sign_event(HONEST, [[PING]], number=12), ticking)


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


def killed(directory: Path, *, kills: int, triggers: int) -> None:
    """Kill two relayers while eight runs become due each second; then let each end by itself, and check."""
    names = ["one", "two"]
    with course(directory) as made, ThreadPoolExecutor() as pool:
        site = made.site
        for name in names:
            site.config(name)
        adding = pool.submit(made.add_often, triggers)
        killing = [pool.submit(kill_often, site, name, kills // 2, random.Random(name)) for name in names]
        for each in [*killing, adding]:
            each.result()
        ticks = made.ticks()
        for name in names:
            done = site.run(name, "--once")
            assert done.returncode == 0, f"{done.stderr}\n{left(site, name)}"
        check(made, ticks)


def left(site: Site, name: str) -> list[tuple[Any, ...]]:
    """The runs in a journal that are planned, or not published."""
    with closing(sqlite3.connect(site.directory / f"{name}.db")) as journal:
        return journal.execute(
            "SELECT kind, timestamp_ms, state, tries, answer, next_ms, until_ms, written_ms FROM journal_runs "
            "WHERE state < 2"
        ).fetchall()


def check(made: Course, ticks: set[int]) -> None:
    """What was due has one verdict, of both relayers, with one intent, which is recorded; and no nonce has two.

    A tick may have a note with its reason in place of a verdict.
    """
    runs, now_ms = made.site.all("/executions"), time.time_ns() // 1_000_000
    acting = [each for each in runs if each["triggerSig"] != made.ticking]
    assert sorted(each["triggerSig"] for each in acting if each["triggerType"] == 2) == sorted(made.sigs)
    events = [event_of(each) for each in acting if each["triggerType"] == 1]
    assert sorted((each.block_hash, each.index) for each in events) == sorted(made.added)
    assert {(each["result"], len(each["records"]), len(each["conflicts"])) for each in acting} == {("intents", 2, 0)}
    hashes = {output["hash"] for each in acting for output in each["outputs"]}
    assert len(hashes) == len(acting)
    # A machine may be so slow that an intent comes after its deadline; then it is rightly kept back.
    late = {each["outputs"][0]["hash"] for each in acting if each["timestamp"] + LIFETIME_MS < now_ms}
    intents = made.site.all("/intents", generation="all")
    assert hashes - late <= {each["hash"] for each in intents} <= hashes
    assert len({(each["triggerSig"], each["settler"], each["nonce"]) for each in intents}) == len(intents)
    check_ticks([each for each in runs if each["triggerSig"] == made.ticking], ticks)


def check_ticks(runs: list[dict[str, Any]], ticks: set[int]) -> None:
    verdicts = [each["timestamp"] for each in runs if each["result"] == "nothing"]
    notes = [each for each in runs if each["result"] != "nothing"]
    assert all(each["reason"]["code"] for each in notes)
    noted = [(each.get("from", each["timestamp"]), each.get("to", each["timestamp"])) for each in notes]
    for tick in ticks:
        count = verdicts.count(tick) + sum(first <= tick <= last for first, last in noted)
        assert count == 1, (tick, count, runs)


def test_two_relayers_that_are_killed_lose_and_repeat_nothing(tmp_path: Path) -> None:
    killed(tmp_path, kills=2, triggers=4)


@pytest.mark.long
def test_two_relayers_that_are_killed_again_and_again_lose_and_repeat_nothing(tmp_path: Path) -> None:
    killed(tmp_path, kills=KILLS, triggers=2 * KILLS)
