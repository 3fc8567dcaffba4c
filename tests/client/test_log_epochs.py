"""A client that follows a log through its epochs: none is left out, and none that has ended is the newest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from log_site import NOW_S, LogSite, SiteEpoch, opened_epoch, trigger_fact
from muniment.client import Forged, Forked, Late, NotAnnounced, Progress, Rules, Seen
from muniment.client.flows.log.entries import Known
from muniment.protocol.errors import LogPartNotFound
from muniment.protocol.log.entries import BackfilledFact, CloseFact, LogFact, parse_entry
from muniment.protocol.wire import iso_time

RULES = Rules(NOW_S)
FROM_START = replace(RULES, from_start=True, accepts=True)


def follow(site: LogSite, seen: Seen | None = None, rules: Rules = RULES) -> Progress:
    return site.client().log.follow(seen, rules)


def rotated(size: int = 300) -> LogSite:
    """A registry whose first epoch ended, with `size` entries, and named the second."""
    site = LogSite()
    site.grow(size - 1)
    site.newest.entries.append(CloseFact(opened_epoch(2).keys[0].verifier.text).data)
    site.epochs.append(opened_epoch(2, "rotated", site.newest))
    return site


@pytest.mark.parametrize("size", [3, 255, 256, 257, 300])
def test_an_epoch_that_has_ended_is_not_the_newest(size: int) -> None:
    site = rotated(size)
    ended = site.epochs[0]
    before = LogSite([replace(ended, entries=ended.entries[:-1])])
    earlier, last = follow(before).seen, Seen(*_names(ended), ended.note().data.decode())
    site.epochs.pop()
    for rules in (RULES, FROM_START, replace(RULES, accepts=True)):
        for seen in (None, earlier, last):
            with pytest.raises(Late, match=r"site\.example/log/1 has ended, and the registry does not show"):
                follow(site, seen, rules)


def _names(epoch: SiteEpoch) -> tuple[str, tuple[str, str]]:
    keys = [each.verifier for each in epoch.keys]
    return keys[0].name, (keys[0].text, keys[1].text)


def test_epochs_in_another_order_than_they_began_are_refused() -> None:
    for site in (rotated(), LogSite([opened_epoch(), opened_epoch(2, "restored", opened_epoch())])):
        seen = follow(site).seen
        site.epochs.reverse()
        for rules in (RULES, FROM_START, replace(RULES, accepts=True)):
            for each in (seen, None):
                with pytest.raises(Forged, match=r"shows site\.example/log/1 as newer than site\.example/log/2"):
                    follow(site, each, rules)


def test_an_epoch_is_not_followed_by_the_one_before_it_whatever_their_names() -> None:
    first = opened_epoch()
    second = opened_epoch(2, "restored", first)
    second.name, second.entries = "other.example", renamed(second, "other.example")
    site = LogSite([first, second])
    assert follow(site, None, FROM_START).seen.origin == "other.example/log/2"
    site.epochs.reverse()
    with pytest.raises(Forged, match=r"shows site\.example/log/1 as newer than other\.example/log/2"):
        follow(site, None, FROM_START)


def renamed(epoch: SiteEpoch, name: str) -> list[bytes]:
    """The entries of an epoch whose log has another name."""
    key, time_key = (each.verifier for each in replace(epoch, name=name).keys)
    fact = parse_entry(epoch.entries[0])
    assert isinstance(fact, LogFact)
    changed = LogFact(key.name, key.text, fact.previous, fact.reason, fact.at, time_key.text)
    return [changed.data, *epoch.entries[1:]]


def test_a_checkpoint_of_an_older_epoch_is_compared_without_having_seen_it() -> None:
    site = rotated()
    seen = follow(site).seen
    honest = [site.epochs[0].note(size) for size in (2, 256, 299, 300)]
    for each, count in ((None, 302), (seen, 0)):
        heard: list[int] = []
        rules = replace(RULES, against=honest, on_entry=lambda at, _, heard=heard: heard.append(at))
        found = follow(site, each, rules)
        assert (found.faults, found.new_entries, len(heard)) == ([], count, count)
    other = LogSite()
    other.newest.entries[1] = BackfilledFact(iso_time(NOW_S * 1000 - 1)).data
    other.grow(200)
    for each in (None, seen):
        with pytest.raises(Forked):
            follow(site, each, replace(RULES, against=[other.newest.note()]))
    site.epochs[1] = opened_epoch(2, "restored", site.epochs[0])
    site.epochs[0].entries.pop()
    with pytest.raises(NotAnnounced):
        follow(site, None, replace(RULES, against=honest[:1]))
    assert follow(site, None, replace(RULES, against=honest[:1], accepts=True)).faults == []


def test_a_checkpoint_of_a_hidden_log_is_reported() -> None:
    site = LogSite()
    other = opened_epoch(7)
    found = follow(site, None, replace(RULES, against=[site.newest.note(), other.note()]))
    assert found.faults == ["the registry shows no log site.example/log/7, of which a checkpoint was given"]


def three_epochs() -> LogSite:
    """A registry that has lost nothing, and whose second and third epoch began after a rotation and a move."""
    site = rotated(5)
    site.newest.entries += [trigger_fact(number).data for number in (400, 401)]
    site.epochs.append(opened_epoch(3, "restored", site.newest))
    return site


def test_reading_from_the_start_reports_hidden_entries() -> None:
    """A deactivation in a hidden epoch, or at its hidden end, would not be found."""
    first, second, third = (f"site.example/log/{number}" for number in (1, 2, 3))
    hidden = {
        f"{third} begins after 4 entries of {second}, and 5 of {first} are shown before it": [0, 2],
        f"{second} begins after 5 entries of {first}, and none is shown before it": [1, 2],
        f"{third} begins after 4 entries of {second}, and none is shown before it": [2],
    }
    for words, shown in hidden.items():
        site = three_epochs()
        site.epochs = [site.epochs[number] for number in shown]
        assert follow(site, None, FROM_START).faults == [words]
    site = three_epochs()
    del site.epochs[1].entries[3:]
    words = f"{third} begins after 4 entries of {second}, and 3 of {second} are shown before it"
    assert follow(site, None, FROM_START).faults == [words]
    site.epochs[2] = opened_epoch(3)  # which names no epoch before it
    words = f"{third} begins after 0 entries of -, and 3 of {second} are shown before it"
    assert follow(site, None, FROM_START).faults == [words]
    assert follow(three_epochs(), None, FROM_START).faults == []


def test_an_epoch_that_was_never_signed_is_passed_over_and_cannot_be_pretended() -> None:
    site = rotated(5)
    site.epochs.append(replace(opened_epoch(3, "restored", site.newest), is_signed=False))
    site.epochs.append(opened_epoch(4, "restored", site.newest))
    assert follow(site, None, FROM_START).faults == []
    seen = Seen(*_names(site.epochs[1]), site.epochs[1].note().data.decode())
    assert follow(site, seen, replace(RULES, accepts=True)).seen.origin == "site.example/log/4"
    site.epochs[0].is_signed = False
    assert "and 0 of site.example/log/1 are shown before it" in follow(site, None, FROM_START).faults[0]
    site.epochs[1].is_signed = False
    with pytest.raises(LogPartNotFound):
        follow(site, seen, replace(RULES, accepts=True))
    site.epochs[3].is_signed = False
    with pytest.raises(LogPartNotFound):
        follow(site, None, FROM_START)


def test_a_registry_that_has_lost_what_was_seen_is_followed_if_that_is_accepted() -> None:
    site = LogSite()
    site.grow(9)
    known: Known = {}
    seen = follow(site, None, replace(RULES, known=known)).seen
    site.epochs.append(opened_epoch(2, "restored", site.newest))
    del site.epochs[0].entries[5:]
    with pytest.raises(
        NotAnnounced, match=r"shows 5 entries of site\.example/log/1, of which 9 were seen, and another"
    ):
        follow(site, seen)
    site.newest.entries.append(trigger_fact(7).data)  # which was lost
    for each in (known, {}, None):
        found = follow(site, seen, replace(RULES, accepts=True, known=each))
        assert (found.seen.origin, found.faults, found.new_entries) == ("site.example/log/2", [], 3)
    site.epochs.pop()
    with pytest.raises(Late, match="shows 5 entries of the log, and 9 were seen"):
        follow(site, seen, replace(RULES, accepts=True))


def test_a_log_without_entries_is_refused() -> None:
    site = rotated(5)
    site.newest.entries.clear()
    for rules in (RULES, FROM_START):
        with pytest.raises(Forged, match=r"the checkpoint of site\.example/log/2 has no entries"):
            follow(site, None, rules)


def test_a_rotation_is_followed() -> None:
    site = LogSite()
    site.grow(300)
    seen = follow(site).seen
    new = opened_epoch(2)
    site.newest.entries.append(CloseFact(new.keys[0].verifier.text).data)
    new = opened_epoch(2, "rotated", site.newest)
    site.epochs.append(new)
    found = follow(site, seen)
    assert (found.seen.origin, found.size, found.new_entries, found.faults) == ("site.example/log/2", 2, 3, [])
    assert follow(site, found.seen).new_entries == 0
    assert follow(site).size == 2
    heard: list[int] = []
    follow(site, None, replace(RULES, from_start=True, on_entry=lambda at, _: heard.append(at)))
    assert heard == [*range(301), 0, 1]
    # Who saw the last entry before the next epoch began.
    last = Seen(seen.origin, seen.vkeys, site.epochs[0].note().data.decode())
    assert follow(site, last).seen == found.seen
    site.epochs[1] = opened_epoch(2, "rotated", opened_epoch())
    assert "names another end of site.example/log/1" in follow(site, seen).faults[0]


@pytest.mark.parametrize("reason", ["restored", "new"])
def test_another_log_is_followed_only_if_it_is_accepted(reason: str) -> None:
    site = LogSite()
    site.grow(300)
    seen = follow(site).seen
    before = site.newest if reason == "restored" else None
    site.epochs.append(opened_epoch(2, reason, before))
    with pytest.raises(NotAnnounced, match=r"does not announce site.example/log/2"):
        follow(site, seen)
    assert follow(site, seen, replace(RULES, accepts=True)).seen.origin == "site.example/log/2"
    site.epochs = site.epochs[1:]
    with pytest.raises(NotAnnounced, match=r"no longer shows the log site.example/log/1"):
        follow(site, seen)
    assert follow(site, seen, replace(RULES, accepts=True)).seen.origin == "site.example/log/2"


def test_an_epoch_that_names_fewer_entries_than_were_seen_is_reported() -> None:
    site = LogSite()
    site.grow(300)
    seen = follow(site).seen
    short = LogSite()
    short.grow(200)
    site.epochs.append(opened_epoch(2, "restored", short.newest))
    with pytest.raises(NotAnnounced, match="ended with 200 entries, and 300 are shown"):
        follow(site, seen)
