"""A client that follows a log detects a registry that changes its history, or shows two histories."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from log_site import NOW_S, LogSite, SiteEpoch, opened_epoch, trigger_fact
from muniment.client import Forged, Forked, Late, Progress, Rules, Seen
from muniment.protocol.log.entries import BackfilledFact, CloseFact, Entry, parse_entry
from muniment.protocol.log.notes import COSIGNATURE, keys_of_log, sign_note, signing_key
from muniment.protocol.log.policy import parse_policy
from muniment.protocol.log.tiles import BUNDLE_BYTES_MAX
from muniment.protocol.wire import iso_time

RULES = Rules(NOW_S)
SIZES = [2, 3, 255, 256, 257, 300, 511, 512, 700]


def follow(site: LogSite, seen: Seen | None = None, rules: Rules = RULES) -> Progress:
    return site.client().log.follow(seen, rules)


@pytest.fixture
def site() -> LogSite:
    return LogSite()


@pytest.mark.parametrize("size", SIZES)
def test_a_log_that_only_grows_is_followed_from_anywhere(site: LogSite, size: int) -> None:
    site.grow(size)
    first = follow(site)
    assert (first.size, first.new_entries, first.faults, first.signed_at_s) == (size, size, [], NOW_S)
    for larger in [each for each in SIZES if each >= size]:
        site.grow(larger)
        heard: list[tuple[int, Entry | None]] = []
        found = follow(
            site, first.seen, replace(RULES, on_entry=lambda at, fact, heard=heard: heard.append((at, fact)))
        )
        assert (found.size, found.new_entries, found.faults) == (larger, larger - size, [])
        assert heard == [(at, parse_entry(site.newest.entries[at])) for at in range(size, larger)]


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("shown", [2, 3, 256, 300, 700])
def test_another_history_than_before_is_proved(site: LogSite, size: int, shown: int) -> None:
    site.grow(size)
    seen = follow(site).seen
    other = LogSite()
    other.newest.entries[1] = BackfilledFact(iso_time(NOW_S * 1000 - 1)).data
    other.grow(shown)
    if shown < size:  # the rest of the larger tree may be served no longer
        with pytest.raises(Late, match=f"shows {shown} entries"):
            follow(other, seen)
        return
    with pytest.raises(Forked) as fork:
        follow(other, seen)
    assert [each.checkpoint.size for each in (fork.value.one, fork.value.other)] == [size, shown]
    assert fork.value.other.note.data == other.newest.note().data


def test_the_checkpoint_of_another_reader_is_compared(site: LogSite) -> None:
    site.grow(300)
    honest = [site.newest.note(size) for size in (2, 256, 299, 300)]
    site.grow(700)
    assert follow(site, None, replace(RULES, against=honest)).size == 700
    other = LogSite()
    other.newest.entries[1] = BackfilledFact(iso_time(NOW_S * 1000 - 1)).data
    other.grow(300)
    with pytest.raises(Forked):
        follow(site, None, replace(RULES, against=[other.newest.note()]))
    site.newest.entries = site.newest.entries[:299]
    with pytest.raises(Late, match="shows 299 entries of the log, and 300 were seen"):
        follow(site, None, replace(RULES, against=honest))
    foreign = SiteEpoch(1, site.newest.entries, secret=b"\x99" * 32).note()
    (fault,) = follow(site, None, replace(RULES, against=[foreign, foreign])).faults
    assert fault == "the registry shows site.example/log/1 under another key than a given checkpoint"


@pytest.mark.parametrize(("seconds", "words"), [(901, "15 minutes ago"), (-960, "in the future")])
def test_a_log_of_another_time_is_not_taken_for_the_newest(site: LogSite, seconds: int, words: str) -> None:
    site.newest.at_s = NOW_S - 900
    assert follow(site).size == 2
    site.newest.at_s = NOW_S - seconds
    with pytest.raises(Late, match=words):
        follow(site)


def test_a_checkpoint_by_another_key_is_refused(site: LogSite) -> None:
    seen = follow(site).seen
    site.newest.secret = b"\x99" * 32
    with pytest.raises(Forged, match="names other keys"):
        follow(site, seen)
    honest = LogSite()
    honest.lie = lambda path, content: site.newest.note().data if path.endswith("checkpoint") else content
    with pytest.raises(Forged, match="has no signature by"):
        follow(honest, seen)
    site = LogSite()
    site.newest.is_timed = False
    with pytest.raises(Forged, match="has no signed time"):
        follow(site, seen)


def test_every_flipped_bit_is_refused(site: LogSite) -> None:
    site.grow(300)
    seen = follow(site).seen
    site.grow(700)
    site.asked.clear()
    follow(site, seen)
    check_flips(site, seen, 6)
    site.asked.clear()
    follow(site)
    check_flips(site, None, 8)


def check_flips(site: LogSite, seen: Seen | None, count: int) -> None:
    """Whatever bit is flipped in one of the answers that were asked for, the log is refused.

    Nor is an entry handed out that the log does not have.
    """
    first = 300 if seen else 0
    honest = [(at, parse_entry(entry)) for at, entry in enumerate(site.newest.entries[first:], first)]
    heard: list[tuple[int, Entry | None]] = []
    rules = replace(RULES, on_entry=lambda at, fact: heard.append((at, fact)))
    paths = {path for path in site.asked if path != "/log"}
    assert len(paths) == count
    for path in sorted(paths):
        for at in (0, 20, -1):

            def flipped(asked: str, content: bytes, path: str = path, at: int = at) -> bytes:
                changed = bytearray(content)
                changed[at] ^= 1
                return bytes(changed) if asked == path else content

            site.lie = flipped
            heard.clear()
            with pytest.raises(Forged):
                follow(site, seen, rules)
            assert heard == honest[: len(heard)]
    site.lie = lambda _, content: content


def test_entries_of_another_tree_are_refused(site: LogSite) -> None:
    other = LogSite()
    other.newest.entries[1] = BackfilledFact(iso_time(NOW_S * 1000 - 1)).data
    for each in (site, other):
        each.grow(300)
    site.lie = lambda path, content: other.newest.note().data if path.endswith("checkpoint") else content
    with pytest.raises(Forged, match="make another tree"):
        follow(site)


def test_a_first_entry_of_another_key_is_reported(site: LogSite) -> None:
    site.newest.secret = b"\x99" * 32
    assert follow(site).faults == ["entry 0 of site.example/log/1: it names another log, or another key"]


def test_another_key_for_the_time_than_in_the_first_entry_is_refused(site: LogSite) -> None:
    site.grow(300)
    seen = follow(site).seen
    mine = keys_of_log("site.example/log/2", b"\x99" * 32)[1]
    site.newest.entries.append(CloseFact(opened_epoch(2).keys[0].verifier.text).data)
    new = opened_epoch(2, "rotated", site.newest)
    site.epochs.append(new)
    stale = new.note()
    text, new.at_s = new.keys[1].verifier.text, NOW_S + 7200  # an old checkpoint, with a time that the log did not sign
    answers = {
        "/log": lambda content: content.replace(text.encode(), mine.verifier.text.encode()),
        "/log/2/checkpoint": lambda _: sign_note(stale.text, [new.keys[0], mine], NOW_S + 7200).data,
    }  # fmt: skip
    site.lie = lambda path, content: answers.get(path, lambda same: same)(content)
    for each in (seen, None):
        with pytest.raises(Forged, match=r"another key for the time of site\.example/log/2"):
            follow(site, each, Rules(NOW_S + 7200))


def test_an_entry_after_the_last_one_is_reported_at_the_end_of_a_bundle_too(site: LogSite) -> None:
    site.grow(255)
    before = follow(site).seen
    site.newest.entries.append(CloseFact(site.newest.keys[0].verifier.text).data)
    seen = Seen(before.origin, before.vkeys, site.newest.note().data.decode())
    site.newest.entries.append(trigger_fact(1).data)
    assert follow(site, seen).faults == ["entry 256 of site.example/log/1: it comes after the last entry"]


ANSWERS = {
    "nothing": b"",
    "short": b"\0" * 31,
    "much": b"\0" * 9_000,
    "a bomb": gzip.compress(b"\0" * (BUNDLE_BYTES_MAX + 1)),
    "lengths": b"\xff" * 500,
    "a note of notes": b"a\n1\n" + b"A" * 43 + b"=\n\n" + "— a AAAAAAA=\n".encode() * 20_000,
}


@pytest.mark.parametrize("kind", ["checkpoint", "tile/0/", "tile/1/", "tile/entries/"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_every_other_answer_is_refused(site: LogSite, kind: str, answer: str) -> None:
    site.grow(600)
    site.lie = lambda path, content: ANSWERS[answer] if f"/log/1/{kind}" in path else content
    with pytest.raises(Forged):
        follow(site)


def test_a_registry_that_names_no_log_or_a_bad_one(site: LogSite) -> None:
    site.epochs, epochs = [], site.epochs
    with pytest.raises(Late, match="no checkpoint yet"):
        follow(site)
    site.epochs = epochs
    for change in (b'"prefix":"log/1"', b'"prefix":"../log/1"'), (b"+A", b"+B"), (b'"vkeys":[', b'"vkeys":["a",'):
        site.lie = lambda path, content, change=change: content.replace(*change) if path == "/log" else content
        with pytest.raises(Forged):
            follow(site)


def test_backdated_and_future_entries_are_reported(site: LogSite) -> None:
    seen = follow(site).seen
    site.newest.at_s = NOW_S + 60
    for at_s in (NOW_S - 600, NOW_S + 60, NOW_S - 601, NOW_S + 61):
        site.newest.entries.append(trigger_fact(at_s, at_s).data)
    found = follow(site, seen)
    assert [each.partition(": ")[2][:30] for each in found.faults] == [
        "absent 10 minutes after its da",
        "dated later than its checkpoin",
    ]
    assert [each.split(" ")[1] for each in found.faults] == ["4", "5"]
    assert follow(site).faults == found.faults[1:]  # who sees it first cannot tell when it came


def test_malformed_entries_are_reported(site: LogSite) -> None:
    entries = site.newest.entries
    last = CloseFact(site.newest.keys[0].verifier.text).data
    entries += [b"muniment/trigger/v1\n", b"another/kind/v9\nx\n", entries[0], last, trigger_fact(1).data]
    found = follow(site)
    assert [each.split(": ", 1)[0].split(" ")[1] for each in found.faults] == ["2", "4", "6"]
    site.newest.entries = entries[1:2]
    assert "the first entry" in follow(site).faults[0]


def test_the_witnesses_of_a_policy_must_have_signed(site: LogSite) -> None:
    witness = signing_key("witness.example", COSIGNATURE, b"\x55" * 32)
    policy = parse_policy(f"witness w {witness.verifier.text}\nquorum w\n".encode())
    with pytest.raises(Late, match="witnesses that the policy asks for"):
        follow(site, None, replace(RULES, policy=policy))
    site.newest.more_keys.append(witness)
    assert follow(site, None, replace(RULES, policy=policy)).size == 2


def test_a_policy_that_names_logs_is_of_no_other_one(site: LogSite) -> None:
    for key, is_right in ((site.newest.keys[0], True), (opened_epoch(7).keys[0], False)):
        policy = parse_policy(f"log {key.verifier.text}\nquorum none\n".encode())
        if is_right:
            assert follow(site, None, replace(RULES, policy=policy)).size == 2
        else:
            with pytest.raises(Late, match=r"the policy names other logs than site\.example/log/1\+"):
                follow(site, None, replace(RULES, policy=policy))
