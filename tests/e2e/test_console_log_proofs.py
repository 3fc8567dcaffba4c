"""The console proves in the browser what the log has: as the Python code proves it, and no other record."""

from __future__ import annotations

from typing import Any

import pytest

from log_site import NOW_S, LogSite, SiteEpoch, trigger_fact
from muniment.protocol.log.checkpoints import parse_proof
from muniment.protocol.log.entries import DeactivationFact, FunctionFact, description_hash
from node_program import NODE
from proving import Failed, prove

pytestmark = [pytest.mark.node, pytest.mark.skipif(NODE is None, reason="Node.js is not installed")]


def grown(size: int) -> SiteEpoch:
    site = LogSite()
    site.newest.entries = site.newest.entries[:size]
    site.grow(size)
    return site.newest


def test_every_entry_of_small_trees_is_proved() -> None:
    asked: list[tuple[Any, ...]] = []
    wanted: list[list[Any]] = []
    for size in [*range(1, 18), 255, 256, 257, 300]:
        epoch = grown(size)
        for index in {*range(min(size, 17)), size // 2, size - 1}:
            asked.append(("logProof", epoch.entries[index].decode(), epoch.proof(index).data.decode()))
            wanted.append([index, size, "site.example/log/1"])
    assert prove(*asked) == wanted


def test_no_other_entry_or_path_is_proved() -> None:
    epoch = grown(300)
    proof, entry = epoch.proof(123), epoch.entries[123].decode()
    text = proof.data.decode()
    lines = text.split("\n")
    lies = [
        (entry + "x", text), (epoch.entries[124].decode(), text),
        (entry, text.replace("\nindex 123\n", "\nindex 122\n")),
        (entry, "\n".join([*lines[:3], *lines[4:]])), (entry, "\n".join([*lines[:3], lines[3], *lines[3:]])),
        (entry, "\n".join([*lines[:3], lines[4], lines[3], *lines[5:]])), (entry, text.replace("\n300\n", "\n200\n")),
        (entry, text.replace("\n300\n", "\n123\n")), (entry, text.replace("index 123", "index 0123")), (entry, ""),
        (entry, text.replace("c2sp.org/tlog-proof@v1", "c2sp.org/tlog-proof@v2")), (entry, text.partition("\n\n")[0]),
    ]  # fmt: skip
    answers = prove(*(("logProof", *lie) for lie in lies))
    assert [type(each) for each in answers] == [Failed] * len(lies)
    assert parse_proof(proof.data) == proof


def test_an_entry_is_named_by_what_no_other_entry_has() -> None:
    function = FunctionFact("Qm", "0xB", "0xA", "2026-11-20T19:48:00.123Z")
    ended = DeactivationFact("0xs", "0xA", function.created_at, "Mimic Protocol - Registry", ("0x1b", "0x2b"))
    trigger = trigger_fact(1)
    names = prove(*(("entryName", each.data.decode()) for each in (trigger, function, ended)))
    assert names == [f"{trigger.kind} {trigger.sig}", f"{function.kind} Qm 0xB", f"{ended.kind} 0xs"]


def test_signatures_of_the_log_are_verified() -> None:
    epoch = grown(7)
    key, time_key = (each.verifier.text for each in epoch.keys)
    note = epoch.note().data.decode()
    other = SiteEpoch(1, epoch.entries, secret=b"\x99" * 32)
    asked = [
        (note, key), (note, time_key), (note.replace("\n7\n", "\n8\n"), key), (note, other.keys[0].verifier.text),
        (other.note().data.decode(), key), (note, "site.example/log/1+00000000+AQ=="), (note, "x"), ("", key),
    ]  # fmt: skip
    right, at_s, *wrong = prove(*(("signedAt", *each) for each in asked))
    assert (right, at_s) == (0, NOW_S)
    assert [type(each) for each in wrong] == [Failed] * len(wrong)


def test_entries_are_those_of_the_log() -> None:
    record = {
        "sig": "0x1b", "signer": "0xA", "functionCid": "Qm", "createdAt": "2026-11-20T19:48:00.123Z",
        "description": "Every six hours ☂",
    }  # fmt: skip
    function = {"CID": "Qm", "creator": "0xA", "createdAt": "2026-11-20T19:48:00.123Z"}
    ended = {
        "signature": "0xs", "signer": "0xA", "createdAt": function["createdAt"], "triggerSigs": ["0x1b", "0x2b"],
        "domain": {"name": "Mimic Protocol - Registry"},
    }  # fmt: skip
    shifted = {**ended, "signature": "0xs\n0xA", "signer": ended["createdAt"], "triggerSigs": ["0x2b"]}
    shifted |= {"createdAt": "Mimic Protocol - Registry", "domain": {"name": "0x1b"}}
    [broken] = prove(("deactivationEntry", shifted))
    assert isinstance(broken, Failed), "values with line breaks would make the same entry of another record"
    asked = ("triggerEntry", record, "0xd", "Mimic Protocol - Registry")
    trigger, deployed, end = prove(asked, ("functionEntry", function), ("deactivationEntry", ended))
    end_fact = DeactivationFact("0xs", "0xA", function["createdAt"], "Mimic Protocol - Registry", ("0x1b", "0x2b"))
    assert end.encode() == end_fact.data
    assert trigger.split("\n") == [
        "muniment/trigger/v1", "0x1b", "0xA", "0xd", "Qm", record["createdAt"],
        description_hash(record["description"]), "Mimic Protocol - Registry", "",
    ]  # fmt: skip
    assert deployed.encode() == FunctionFact("Qm", "0xA", "0xA", function["createdAt"]).data
