"""The entries of the log: their exact bytes, which every release must make again."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, strategies as st

from builders import Wallet
from each_row import each_row
from muniment.protocol.ipfs.cid import cid_v0, cid_v1
from muniment.protocol.log.entries import (
    NO_EPOCH,
    BackfilledFact,
    CloseFact,
    DeactivationFact,
    Entry,
    FunctionFact,
    LogFact,
    TriggerFact,
    description_hash,
    parse_entry,
    previous_epoch,
)
from muniment.protocol.log.notes import keys_of_log
from muniment.protocol.log.tiles import ENTRY_BYTES_MAX
from muniment.protocol.log.tree import leaf_hash
from muniment.protocol.triggers.types import TRIGGER_SIGS_MAX

ALICE = str(Wallet(1).address)
BOB = str(Wallet(2).address)
SIG = "0x" + "11" * 64 + "1b"
OTHER_SIG = "0x" + "22" * 64 + "1c"
CID = str(cid_v0(bytes(32)))
NEW_CID = str(cid_v1(0x70, bytes(32)))
AT = "2026-11-20T19:48:00.123Z"
DOMAIN = "Mimic Protocol - Registry"
FIRST_KEYS, NEXT_KEYS = (
    [key.verifier.text for key in keys_of_log(f"registry.example/log/{number}", bytes(32))] for number in (1, 2)
)
BEFORE = f"registry.example/log/1\n7\n{'A' * 43}="
HASH = "0x" + hashlib.sha256("Every six hours ☂".encode()).hexdigest()

ENTRIES: dict[str, tuple[Entry, str]] = {
    "function": (FunctionFact(CID, BOB, ALICE, AT), f"muniment/function/v1\n{CID}\n{BOB}\n{ALICE}\n{AT}\n"),
    "trigger": (
        TriggerFact(SIG, ALICE, "0x" + "ab" * 32, NEW_CID, AT, description_hash("Every six hours ☂"), DOMAIN),
        f"muniment/trigger/v1\n{SIG}\n{ALICE}\n0x{'ab' * 32}\n{NEW_CID}\n{AT}\n{HASH}\n{DOMAIN}\n",
    ),
    "deactivation": (
        DeactivationFact(OTHER_SIG, ALICE, AT, DOMAIN, (SIG, OTHER_SIG)),
        f"muniment/deactivation/v1\n{OTHER_SIG}\n{ALICE}\n{AT}\n{DOMAIN}\n{SIG}\n{OTHER_SIG}\n",
    ),
    "first log": (
        LogFact("registry.example/log/1", FIRST_KEYS[0], NO_EPOCH, "new", AT, FIRST_KEYS[1]),
        f"muniment/log/v1\nregistry.example/log/1\n{FIRST_KEYS[0]}\n-\n0\n-\nnew\n{AT}\n{FIRST_KEYS[1]}\n",
    ),
    "next log": (
        LogFact(
            "registry.example/log/2", NEXT_KEYS[0],
            previous_epoch("registry.example/log/1", 7, bytes(32)), "restored", AT, NEXT_KEYS[1],
        ),
        f"muniment/log/v1\nregistry.example/log/2\n{NEXT_KEYS[0]}\n{BEFORE}\nrestored\n{AT}\n{NEXT_KEYS[1]}\n",
    ),
    "taken over": (BackfilledFact(AT), f"muniment/taken-over/v1\n{AT}\n"),
    "close": (CloseFact(NEXT_KEYS[0]), f"muniment/close/v1\n{NEXT_KEYS[0]}\n"),
}  # fmt: skip


@each_row("name", ENTRIES)
def test_an_entry_has_these_bytes_and_is_read_from_them(name: str) -> None:
    entry, text = ENTRIES[name]
    assert entry.data.decode() == text
    assert parse_entry(entry.data) == entry
    assert leaf_hash(entry.data) == hashlib.sha256(b"\0" + text.encode()).digest()


def test_a_deactivation_of_as_many_triggers_as_can_be_is_one_entry() -> None:
    most = DeactivationFact(SIG, ALICE, AT, DOMAIN, (SIG,) * TRIGGER_SIGS_MAX)
    assert parse_entry(most.data) == most
    assert len(most.data) < 14_000
    more = DeactivationFact(SIG, ALICE, AT, DOMAIN, (SIG,) * (TRIGGER_SIGS_MAX + 1))
    with pytest.raises(ValueError, match="names 1 to 100 triggers"):
        parse_entry(more.data)


@each_row("text", ["a\nb", "", "a\x00b", "a\x85b", "a\u2028b", "a\ud800b", "\x7f"])
def test_a_value_that_is_not_one_line_makes_no_entry(text: str) -> None:
    with pytest.raises(ValueError, match="a line of an entry"):
        _ = TriggerFact(SIG, ALICE, "0x" + "ab" * 32, CID, AT, HASH, text).data


def test_an_entry_has_at_most_65535_bytes() -> None:
    longest = "a" * (ENTRY_BYTES_MAX - len(ENTRIES["deactivation"][1]) + len(DOMAIN))
    entry = DeactivationFact(OTHER_SIG, ALICE, AT, longest, (SIG, OTHER_SIG))
    assert (len(entry.data), parse_entry(entry.data)) == (ENTRY_BYTES_MAX, entry)
    with pytest.raises(ValueError, match="at most 65535 bytes"):
        _ = DeactivationFact(OTHER_SIG, ALICE, AT, longest + "a", (SIG, OTHER_SIG)).data
    with pytest.raises(ValueError, match="at most 65535 bytes"):
        parse_entry(entry.data + b"a")


@each_row("data", [b"", b"muniment/trigger/v2\nanything", b"\xff\x00", b"{}"])
def test_an_entry_of_an_unknown_kind_is_not_interpreted(data: bytes) -> None:
    assert parse_entry(data) is None


def swapped(name: str, old: str, new: str) -> bytes:
    text = ENTRIES[name][1]
    assert old in text
    return text.replace(old, new, 1).encode()


@each_row(
    ("data", "reason"),
    [
        (b"muniment/trigger/v1", "7 lines"),
        (ENTRIES["function"][1].encode()[:-1], "ends in a newline"),
        (ENTRIES["function"][1].encode() + b"more\n", "4 lines"),
        (b"muniment/taken-over/v1\n\xff\n", "UTF-8"),
        (swapped("function", ALICE, ALICE.lower()), "canonical spelling"),
        (swapped("function", BOB, "0x12"), "an address is"),
        (swapped("function", CID, "Qm"), "CID"),
        (swapped("function", AT, "2026-11-20T19:48:00Z"), "is not a time"),
        (swapped("function", AT, "2026-13-20T19:48:00.123Z"), "is not a time"),
        (swapped("function", AT, "2026-11-20T24:00:00.000Z"), "is not a time"),
        (swapped("trigger", SIG, SIG[:-2] + "00"), "canonical spelling"),
        (swapped("trigger", "ab" * 32, "AB" * 32), "canonical spelling"),
        (swapped("trigger", HASH, "0x12"), "64 hex digits"),
        (swapped("trigger", DOMAIN, ""), "the domain"),
        (swapped("trigger", DOMAIN, "a\x85b"), "the domain"),
        (swapped("deactivation", f"{SIG}\n{OTHER_SIG}\n", ""), "names 1 to 100"),
        (swapped("first log", "new", "old"), "new, rotated or restored"),
        (swapped("first log", "log/1\nregistry", "log/2\nregistry"), "another name than its origin"),
        (swapped("first log", FIRST_KEYS[1], NEXT_KEYS[1]), "another name than its origin"),
        (swapped("first log", FIRST_KEYS[1], "key"), "NAME+ID+KEY"),
        (swapped("first log", "-\n0\n-", "-\n1\n-"), "is not base64"),
        (swapped("next log", "\n7\n", "\n07\n"), "is not a decimal number"),
        (swapped("next log", "A" * 43, "A" * 39), "bytes in place of 32"),
        (swapped("close", NEXT_KEYS[0], "key"), "NAME+ID+KEY"),
    ],
)
def test_a_malformed_entry_of_a_known_kind_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("+", r"\+")):
        parse_entry(data)


@given(st.sampled_from(sorted(ENTRIES)), st.data())
def test_whatever_is_read_has_one_spelling(name: str, data: st.DataObject) -> None:
    raw = ENTRIES[name][1].encode()
    at, byte = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.binary(max_size=2))
    broken = raw[:at] + byte + raw[at + 1 :]
    try:
        entry = parse_entry(broken)
    except ValueError:
        return
    assert entry is None or entry.data == broken
