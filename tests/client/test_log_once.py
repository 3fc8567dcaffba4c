"""A log has each record once: two entries of one would both be proved, and each could be shown to others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from facades_world import spelled_v1

from log_site import NOW_S, LogSite, opened_epoch, trigger_fact
from muniment.client import Forged, Progress, Rules, Seen
from muniment.client.flows.log.entries import Known
from muniment.protocol.forms import decode_record
from muniment.protocol.log.entries import CloseFact, DeactivationFact, Fact, FunctionFact
from muniment.protocol.triggers.types import RecordedDeactivation
from muniment.protocol.wire import iso_time

RULES = Rules(NOW_S)
TRIGGER = trigger_fact(1)
OTHER = "0x52908400098527886E0F7030069857D2E4169EE7"
DEACTIVATION = DeactivationFact(
    TRIGGER.sig, TRIGGER.signer, TRIGGER.created_at, TRIGGER.domain, (trigger_fact(7).sig, trigger_fact(8).sig)
)
FUNCTION = FunctionFact(TRIGGER.function_cid, TRIGGER.signer, TRIGGER.signer, TRIGGER.created_at)
LATER = iso_time(NOW_S * 1000 - 1)


def changed(fact: Fact, **members: object) -> Fact:
    values = {name: getattr(fact, name) for name in fact.__struct_fields__}
    return type(fact)(**{**values, **members})


# The first entry, another one of the same record, and what is said of it.
TWICE = {
    "a trigger": (TRIGGER, TRIGGER, f"the log has two entries of trigger {TRIGGER.sig}"),
    "a trigger at another time": (TRIGGER, changed(TRIGGER, created_at=LATER), "two entries of trigger"),
    "a consent": (
        TRIGGER, changed(TRIGGER, sig=trigger_fact(9_999).sig), f"consent {TRIGGER.digest} by {TRIGGER.signer}"
    ),
    "a signature": (TRIGGER, changed(TRIGGER, digest="0x" + "cd" * 32, signer=OTHER), "two entries of trigger"),
    "a deactivation": (DEACTIVATION, changed(DEACTIVATION, created_at=LATER), "two entries of deactivation"),
    "a deactivation of others": (DEACTIVATION, changed(DEACTIVATION, trigger_sigs=(TRIGGER.sig,)), "two entries"),
    "a function": (FUNCTION, changed(FUNCTION, created_at=LATER), "two entries of function"),
    "a function in its other spelling": (FUNCTION, changed(FUNCTION, cid=spelled_v1(FUNCTION.cid)), "two entries of"),
    "the creator of a function": (FUNCTION, changed(FUNCTION, uploader=OTHER, creator=OTHER), "two entries differ on"),
    "the time of a function": (FUNCTION, changed(FUNCTION, uploader=OTHER, created_at=LATER), "two entries differ on"),
}  # fmt: skip
# No record twice.
APART = [
    TRIGGER, changed(TRIGGER, sig=trigger_fact(2).sig, digest="0x" + "cd" * 32),
    changed(TRIGGER, sig=trigger_fact(3).sig, signer=OTHER), DEACTIVATION,
    changed(DEACTIVATION, signature=trigger_fact(9).sig), FUNCTION, changed(FUNCTION, uploader=OTHER),
    changed(FUNCTION, cid="QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ"),
]  # fmt: skip


def follow(site: LogSite, seen: Seen | None = None, rules: Rules = RULES) -> Progress:
    return site.client().log.follow(seen, rules)


@pytest.fixture
def site() -> LogSite:
    return LogSite()


def test_an_honest_log_has_each_record_once(site: LogSite) -> None:
    site.newest.entries += [each.data for each in APART]
    assert follow(site).faults == []


@pytest.mark.parametrize("name", TWICE)
@pytest.mark.parametrize("way", ["at once", "later", "later, after reading again", "after a rotation"])
def test_a_second_entry_of_a_record_is_reported(site: LogSite, name: str, way: str) -> None:
    first, second, words = TWICE[name]
    known: Known = {}
    rules = replace(RULES, known=known)
    site.newest.entries.append(first.data)
    seen = None if way == "at once" else follow(site, None, rules).seen
    if way == "after a rotation":
        site.newest.entries.append(CloseFact(opened_epoch(2).keys[0].verifier.text).data)
        site.epochs.append(opened_epoch(2, "rotated", site.newest))
    if way == "later, after reading again":
        known.clear()
    site.grow(260)
    site.newest.entries.append(second.data)
    faults = follow(site, seen, rules).faults
    assert faults
    assert words in faults[0]
    assert faults[0].startswith(f"entry 260 of {site.newest.keys[0].verifier.name}: ")


def test_what_a_restored_registry_records_again_is_no_second_entry(site: LogSite) -> None:
    site.newest.entries.append(TRIGGER.data)
    known: Known = {}
    rules = replace(RULES, known=known, accepts=True)
    seen = follow(site, None, rules).seen
    site.epochs.append(opened_epoch(2, "restored", opened_epoch()))
    site.newest.entries.append(changed(TRIGGER, created_at=LATER).data)
    assert follow(site, seen, rules).faults == []
    site.newest.entries.append(TRIGGER.data)
    assert len(follow(site, seen, rules).faults) == 2  # of the signature, and of the consent


def test_an_epoch_that_was_announced_is_of_no_restored_registry(site: LogSite) -> None:
    site.newest.entries.append(TRIGGER.data)
    known: Known = {}
    seen = follow(site, None, replace(RULES, known=known)).seen
    site.newest.entries.append(CloseFact(opened_epoch(2).keys[0].verifier.text).data)
    site.epochs.append(opened_epoch(2, "restored", site.newest))
    site.newest.entries.append(changed(TRIGGER, created_at=LATER).data)
    assert len(follow(site, seen, replace(RULES, known=known)).faults) == 2


def test_what_is_known_of_another_log_is_forgotten(site: LogSite) -> None:
    site.newest.entries.append(TRIGGER.data)
    known: Known = {}
    follow(site, None, replace(RULES, known=known))
    assert follow(site, None, replace(RULES, known=known)).faults == []
    assert len(known) == 3  # the signature, the consent, and the log


def test_entries_that_are_read_again_after_an_interruption_are_no_second_ones(site: LogSite) -> None:
    known: Known = {}
    rules = replace(RULES, known=known)
    seen = follow(site, None, rules).seen
    site.newest.entries += [each.data for each in APART]
    site.grow(300)
    honest = site.lie
    site.lie = lambda path, content: b"" if path.endswith("entries/001.p/44") else content
    with pytest.raises(Forged):
        follow(site, seen, rules)
    site.lie = honest
    assert follow(site, seen, rules).faults == []


def test_what_is_known_in_part_or_of_another_log_is_read_again(site: LogSite) -> None:
    site.newest.entries.append(TRIGGER.data)
    site.grow(300)
    seen = follow(site).seen
    other = LogSite([opened_epoch(2)])
    other.newest.entries += [TRIGGER.data, trigger_fact(9_999).data]
    of_other: Known = {}
    follow(other, None, replace(RULES, known=of_other))
    in_part: Known = {}
    site.lie = lambda path, content: b"" if path.endswith("entries/001.p/44") else content
    with pytest.raises(Forged):
        follow(site, seen, replace(RULES, known=in_part))
    site.lie = lambda _, content: content
    site.newest.entries += [trigger_fact(9_999).data, trigger_fact(299).data]
    for known in (in_part, of_other):
        faults = follow(site, seen, replace(RULES, known=known)).faults
        assert [each.split(": ")[0] for each in faults] == ["entry 301 of site.example/log/1"] * 2


DOMAIN = {"name": TRIGGER.domain, "version": "1"}
RECORD = {
    "signature": DEACTIVATION.signature, "signer": DEACTIVATION.signer, "domain": DOMAIN, "form": "eip712",
    "triggerSigs": [*DEACTIVATION.trigger_sigs], "createdAt": DEACTIVATION.created_at,
}  # fmt: skip


def test_two_versions_of_a_record_are_not_both_proved(site: LogSite) -> None:
    """Each has a proof under the same checkpoint. A client that has seen one does not take the other."""
    at = len(site.newest.entries)
    site.newest.entries += [DEACTIVATION.data, changed(DEACTIVATION, created_at=LATER).data]
    versions = [
        decode_record({**RECORD, "createdAt": each}, RecordedDeactivation) for each in (RECORD["createdAt"], LATER)
    ]
    registry = site.client()
    for index in (at, at):
        site.proved = index
        assert registry.log.prove(versions[0]).at == at
    site.proved = at + 1
    with pytest.raises(Forged, match=f"two entries of this record, at the indexes {at} and {at + 1}"):
        registry.log.prove(versions[1])
    assert site.client().log.prove(versions[1]).at == at + 1  # who has seen no other
    followed = site.client()
    assert len(followed.log.follow(None, RULES).faults) == 1
    for index, version in enumerate(versions):
        site.proved = at + index
        with pytest.raises(Forged, match="two entries of this record"):
            followed.log.prove(version)
