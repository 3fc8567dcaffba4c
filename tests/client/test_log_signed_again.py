"""Each reader of the log finds a front that signs a changed log again, as docs/use/transparency-log.md states.

A reader that has seen the keys of the log finds every front with other keys; for a lie that the log itself signs, the
results are those of the table in that page.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from signed_again_lies import FINE, LIES, NO_PROOF, PROVED, Lie, change_a_record, earlier, log_a_record_twice
from signed_again_world import OWN_SECRET, Front, Said, entries_of, run, seen_log

from followed_world import Site, followed_registry
from log_site import SECRET
from muniment.client import Forged, Registry, Retry
from muniment.client.flows.log.proving import Provable
from muniment.protocol.errors import NotLoggedYet
from muniment.protocol.log.notes import COSIGNATURE, signing_key
from node_program import NODE
from proving import Failed, prove

each_lie = pytest.mark.parametrize("lie", LIES, ids=[each.tell.__name__ for each in LIES])


@pytest.fixture(autouse=True)
def proofs_of_forks_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with followed_registry(tmp_path_factory.mktemp("log")) as made:
        yield made


@pytest.fixture(scope="module")
def entries(site: Site) -> list[bytes]:
    return entries_of(site.url)


@pytest.fixture
def front(site: Site, entries: list[bytes]) -> Front:
    return Front(site, [*entries])


@pytest.fixture(scope="module")
def states(site: Site, entries: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Path]:
    """The states of readers, by what they have not seen."""
    made, folder = Front(site, entries), tmp_path_factory.mktemp("seen")
    sinces = {each.since for each in LIES}
    return {
        since: seen_log(site, entries[: made.find(*since)[0]] if since else entries, folder / str(number))
        for number, since in enumerate(sinces)
    }


def as_said(said: Said, expected: Said) -> None:
    assert (said[0], expected[1] in said[1]) == (expected[0], True), said


def record_of(url: str, site: Site, name: str) -> Provable | None:
    """A record, as it is shown at a URL; None: it is not."""
    with Registry(url, retry=Retry(tries=1)) as registry:
        if name == "function":
            return next(iter(registry.functions.list()))
        if name == "deactivation":
            return registry.triggers.deactivation(site.ending)
        return next((each for each in registry.triggers.list() if each.sig == site.sigs[int(name[-1])]), None)


def told_of(registry: Registry, record: Provable) -> str:
    """The result for a program that proves a record."""
    try:
        registry.log.prove(record)
    except NotLoggedYet:
        return "not logged yet"
    except Forged as forged:
        return str(forged)
    return PROVED


@each_lie
def test_who_reads_the_log_for_the_first_time(front: Front, lie: Lie) -> None:
    lie.tell(front)
    url = front.site.middle.url
    with front.site.middle.behaving(front.behave):
        as_said(run("tlog", "verify", url), lie.reads)
        as_said(run("verify", "--remote", url), lie.remote)


@each_lie
def test_who_follows_the_log(front: Front, lie: Lie, states: dict[Any, Path], tmp_path: Path) -> None:
    lie.tell(front)
    command = ("tlog", "verify", front.site.middle.url, "--state", tmp_path / "seen")
    for secret, said in ((OWN_SECRET, (2, "FORGED: the registry names other keys")), (SECRET, lie.follows)):
        for ending in ("", ".known"):
            shutil.copy(f"{states[lie.since]}{ending}", f"{tmp_path / 'seen'}{ending}")
        again = Front(front.site, [*front.entries], dict(front.answers), secret, front.at_s)
        with front.site.middle.behaving(again.behave):
            as_said(run(*command), said)


@each_lie
def test_who_proves_a_record(front: Front, lie: Lie, entries: list[bytes]) -> None:
    site, url = front.site, front.site.middle.url
    held = record_of(site.url, site, lie.record)
    assert held is not None
    key = Front(site, entries, secret=SECRET).epoch.keys[0].verifier.text
    lie.tell(front)
    with site.middle.behaving(front.behave), Registry(url, retry=Retry(tries=1)) as registry:
        told = told_of(registry, held)
        assert lie.held in told
        assert bool(lie.held) == bool(told)
        if told == PROVED:  # the time of the log is there to be looked at
            assert registry.log.prove(held).signed_at_s == front.at_s
            with pytest.raises(Forged, match="has no signature by"):
                registry.log.prove(held, vkey=key)
        if lie.shown != NO_PROOF:
            shown = record_of(url, site, lie.record)
            assert shown is not None
            assert told_of(registry, shown) == lie.shown


def test_a_second_entry_of_a_proved_record_is_reported(front: Front) -> None:
    site = front.site
    held = record_of(site.url, site, "trigger 0")
    assert held is not None
    log_a_record_twice(front)
    with site.middle.behaving(front.behave), Registry(site.middle.url) as registry:
        assert told_of(registry, held) == PROVED
        front.proved = 1
        front.change_trigger(site.sigs[0], lambda record: {**record, "createdAt": earlier(record["createdAt"], 1)})
        shown = record_of(site.middle.url, site, "trigger 0")
        assert shown is not None
        assert "has two entries of this record" in told_of(registry, shown)


@pytest.mark.node
@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_what_the_console_computes(site: Site, entries: list[bytes]) -> None:
    """The pages build the entry from the record that is shown to them, under the keys that the browser saw first."""
    honest = Front(site, entries, secret=SECRET).epoch
    asked: list[tuple[Any, ...]] = []
    wanted: list[object] = []
    with Registry(site.url) as registry:
        for lie in LIES:
            front = Front(site, [*entries])
            lie.tell(front)
            at = index_of(lie.record, registry, site, front)
            if at is None:
                continue
            for url, said in ((site.url, lie.held), (site.middle.url, lie.shown)):
                with site.middle.behaving(front.behave):
                    record = record_of(url, site, lie.record)
                assert record is not None
                text = registry.log.entry(record).decode()
                asked.append(("logProof", text, front.epoch.proof(at).data.decode()))
                wanted.append(Failed if said else [at, len(front.entries), "registry.example/log/1"])
            note = front.epoch.note().data.decode()
            for epoch, at_s in ((front.epoch, front.at_s), (honest, Failed)):
                asked.append(("signedAt", note, epoch.keys[1].verifier.text))
                wanted.append(at_s)
    answers = prove(*asked)
    assert [type(each) if isinstance(each, Failed) else each for each in answers] == wanted


def index_of(name: str, registry: Registry, site: Site, front: Front) -> int | None:
    """The index of the entry that the front has for a record; None: it has none."""
    record = record_of(site.url, site, name)
    assert record is not None
    beginning = b"\n".join(registry.log.entry(record).split(b"\n", 2)[:2])
    return next((at for at, entry in enumerate(front.entries) if entry.startswith(beginning)), None)


def test_two_logs_are_found_when_checkpoints_are_compared(front: Front, entries: list[bytes], tmp_path: Path) -> None:
    (tmp_path / "honest.note").write_bytes(Front(front.site, entries, secret=SECRET).epoch.note().data)
    change_a_record(front)
    for secret, words in (
        (OWN_SECRET, "under another key than a given checkpoint"),
        (SECRET, "has signed two histories"),
    ):
        again = Front(front.site, [*front.entries], dict(front.answers), secret)
        with front.site.middle.behaving(again.behave):
            as_said(run("tlog", "verify", front.site.middle.url, "--against", "honest.note"), (1, words))


def test_witnesses_do_not_sign_the_log_of_a_thief(front: Front, tmp_path: Path) -> None:
    witness = signing_key("witness.example", COSIGNATURE, b"\x55" * 32)
    policy = tmp_path / "policy"
    policy.write_text(f"witness w {witness.verifier.text}\nquorum w\n")
    change_a_record(front)
    front.secret = SECRET
    with front.site.middle.behaving(front.behave):
        said = run("tlog", "verify", front.site.middle.url, "--policy", policy)
        as_said(said, (2, "the witnesses that the policy asks for have not signed"))
        front.epoch.more_keys.append(witness)
        as_said(run("tlog", "verify", front.site.middle.url, "--policy", policy), FINE)
