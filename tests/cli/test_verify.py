"""`muniment verify`: it says that a sound registry is sound, and names every fault of another."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

from backing_up import copy_files
from builders import Bundle, TriggerDraft, Wallet, deploy, register
from muniment.cli.main import main
from muniment.protocol.ipfs.cid import decode_cid
from muniment.service.app import Application, build_context
from muniment.service.running.settings import Settings
from without_server import InProcess


@dataclass
class Registry:
    """A data directory with two functions, three triggers and a deactivation of one of them."""

    data_dir: Path
    cid: str
    live: str
    ended: str
    consent: str

    def verify(self) -> Result:
        return CliRunner().invoke(main, ["verify", "--data-dir", str(self.data_dir)])

    def wrong(self) -> list[str]:
        """The reported findings, at least one."""
        result = self.verify()
        assert result.exit_code == 1, result.output
        lines = [line.removeprefix("WRONG ") for line in result.output.splitlines() if line.startswith("WRONG ")]
        assert f"faults: {len(lines)}" in result.output
        return lines

    def path_of(self, cid: str) -> Path:
        digest = decode_cid(cid).digest.hex()
        return self.data_dir / "blocks" / digest[:2] / digest[2:]

    def sql(self, statement: str, *parameters: Any) -> None:
        connection = sqlite3.connect(self.data_dir / "muniment.db")
        with connection:
            assert connection.execute(statement, parameters).rowcount == 1
        connection.close()

    def change(self, sig: str, **members: Any) -> None:
        """Tamper with the record of a trigger."""
        connection = sqlite3.connect(self.data_dir / "muniment.db")
        raw = bytes.fromhex(sig[2:])
        (record,) = connection.execute("SELECT record FROM triggers WHERE sig = ?", (raw,)).fetchone()
        connection.close()
        self.sql("UPDATE triggers SET record = ? WHERE sig = ?", json.dumps({**json.loads(record), **members}), raw)


async def _filled(client: httpx2.AsyncClient, data_dir: Path) -> Registry:
    cid = await deploy(client, Bundle(inputs={"limit": "uint256"}))
    await deploy(client, Bundle("Other"))
    drafts = [
        TriggerDraft(cid, inputs={"limit": "uint256"}, input={"limit": "5"}, version=f"1.0.{number}")
        for number in range(3)
    ]
    sigs = [(await register(client, draft))["sig"] for draft in drafts]
    consent = Wallet().sign_deactivation(sigs[:1])
    answer = await client.post("/triggers/deactivate", json={"triggerSigs": sigs[:1], "signature": consent})
    assert answer.status_code == 204
    return Registry(data_dir, cid, live=sigs[1], ended=sigs[0], consent=consent)


def _with_client(data_dir: Path, work: Callable[[httpx2.AsyncClient, Path], Awaitable[Registry]]) -> Registry:
    async def run() -> Registry:
        context = build_context(Settings(data_dir=data_dir, log_level="warning"))
        try:
            await context.database.migrate()
            transport = InProcess(Application(context))
            async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
                return await work(client, data_dir)
        finally:
            await context.database.close()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def registry_once(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """The registry that each test gets a copy of."""
    return _with_client(tmp_path_factory.mktemp("once") / "data", _filled)


@pytest.fixture
def registry(registry_once: Registry, tmp_path: Path) -> Registry:
    copy_files(registry_once.data_dir, tmp_path / "data")
    return replace(registry_once, data_dir=tmp_path / "data")


def test_a_healthy_store_is_well(registry: Registry) -> None:
    result = registry.verify()
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "blocks: 5 checked",  # two roots, two manifests, one module
        "functions: 2 checked",
        "triggers: 3 checked",
        "deactivations: 1 checked",
        "intents and proposals: 0 checked",
        "runs: 0 checked",
        "events: 6 checked",
        "all signatures and hashes match",
    ]


def test_an_empty_store_is_well(tmp_path: Path) -> None:
    async def nothing(_: httpx2.AsyncClient, data_dir: Path) -> Registry:
        return Registry(data_dir, "", "", "", "")

    assert _with_client(tmp_path / "data", nothing).verify().exit_code == 0


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0", lambda _: b""])
def test_a_damaged_block_is_named(registry: Registry, change: Callable[[bytes], bytes]) -> None:
    path = registry.path_of(registry.cid)
    path.write_bytes(change(path.read_bytes()))
    digest = decode_cid(registry.cid).digest.hex()
    block, function = registry.wrong()
    assert block.startswith(f"block {digest}: ")
    assert function.startswith(f"function {registry.cid}: ")


def test_a_damaged_block_in_two_functions_is_named_for_both(registry: Registry) -> None:
    (shared,) = [path for path in registry.path_of(registry.cid).parents[1].rglob("*") if is_module(path)]
    shared.write_bytes(b"x")
    assert [line.split()[0] for line in registry.wrong()] == ["block", "function", "function"]


def is_module(path: Path) -> bool:
    return path.is_file() and b"\0asm" in path.read_bytes()


def test_a_missing_block_is_named_with_its_function(registry: Registry) -> None:
    registry.path_of(registry.cid).unlink()
    (function,) = registry.wrong()
    assert function.startswith(f"function {registry.cid}: ")
    assert decode_cid(registry.cid).digest.hex() in function


@pytest.mark.parametrize(
    "members",
    [
        {"version": "9.9.9"}, {"input": {"limit": "6"}}, {"executionFeeLimit": "1"}, {"minValidations": 2},
        {"signer": Wallet(2).address}, {"config": {"type": 0, "schedule": "* * * * *", "delta": "10m", "endDate": 0}},
        {"types": {}}, {"input": {}}, {"version": "x"}, {"signer": "0x12"}, {"types": None}, {"config": []},
        {"endDate": 1_900_000_000_000},
    ],
    ids=str,
)  # fmt: skip
def test_a_tampered_trigger_is_named(registry: Registry, members: dict[str, Any]) -> None:
    registry.change(registry.live, **members)
    (trigger,) = registry.wrong()
    assert trigger.startswith(f"trigger {registry.live}: ")


def test_a_trigger_that_is_not_json_is_named(registry: Registry) -> None:
    registry.sql("UPDATE triggers SET record = '{' WHERE sig = ?", bytes.fromhex(registry.live[2:]))
    (trigger,) = registry.wrong()
    assert trigger.startswith(f"trigger {registry.live}: ")


def test_a_trigger_under_another_name_is_named(registry: Registry) -> None:
    """The record of one trigger put into the row of another is good by itself."""
    connection = sqlite3.connect(registry.data_dir / "muniment.db")
    (other,) = connection.execute("SELECT record FROM triggers ORDER BY seq DESC LIMIT 1").fetchone()
    connection.close()
    raw = bytes.fromhex(registry.live[2:])
    registry.sql("UPDATE triggers SET record = ? WHERE sig = ?", other, raw)
    (trigger,) = registry.wrong()
    assert trigger.startswith(f"trigger {registry.live}: ")


def test_a_deactivation_that_was_taken_back_is_named(registry: Registry) -> None:
    registry.sql("UPDATE triggers SET deactivated = 0 WHERE sig = ?", bytes.fromhex(registry.ended[2:]))
    trigger, event = registry.wrong()
    assert event.startswith("event ")
    assert trigger.startswith(f"trigger {registry.ended}: ")


def test_an_unsigned_deactivation_is_named(registry: Registry) -> None:
    registry.change(registry.live, deactivateSig=registry.consent)
    registry.sql("UPDATE triggers SET deactivated = 1 WHERE sig = ?", bytes.fromhex(registry.live[2:]))
    (trigger,) = registry.wrong()
    assert trigger.startswith(f"trigger {registry.live}: ")


def test_a_consent_that_is_lost_is_named_with_its_trigger(registry: Registry) -> None:
    registry.sql("DELETE FROM deactivations")
    (trigger,) = registry.wrong()
    assert trigger.startswith(f"trigger {registry.ended}: ")


TAMPERED = {
    "another signer": ("signer", b"\1" * 20),
    "another list": ("trigger_sigs", b"\1" * 64 + b"\x1b"),
    "a list of no signatures": ("trigger_sigs", b"\xff" * 65),
    "half a signature": ("trigger_sigs", b"\1" * 30),
    "no list": ("trigger_sigs", b""),
    "another protocol": ("protocol", "Other"),
    "another form": ("form", "eip191"),
    "another signature": ("signature", b"\1" * 64 + b"\x1b"),
    "no signature": ("signature", b"\xff" * 65),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_deactivation_is_named(registry: Registry, what: str) -> None:
    column, value = TAMPERED[what]
    registry.sql(f"UPDATE deactivations SET {column} = ?", value)
    wrong = registry.wrong()
    consent = f"0x{value.hex()}" if column == "signature" and isinstance(value, bytes) else registry.consent
    assert wrong[-1].startswith(f"deactivation {consent}: ")


def test_a_tampered_function_is_named(registry: Registry) -> None:
    registry.sql("UPDATE functions SET record = replace(record, 'Logs one line', 'Does good') WHERE seq = 1")
    (function,) = registry.wrong()
    assert function.startswith(f"function {registry.cid}: ")


def test_tampered_inputs_of_a_function_are_named(registry: Registry) -> None:
    registry.sql("""UPDATE functions SET inputs = '{"limit":"uint8"}' WHERE seq = 1""")
    wrong = registry.wrong()
    assert wrong[0].startswith(f"function {registry.cid}: ")


def test_a_function_that_its_name_does_not_find_is_named(registry: Registry) -> None:
    registry.sql("UPDATE functions SET name_key = CAST('other' AS BLOB) WHERE seq = 1")
    assert registry.wrong() == [f"function {registry.cid}: its name_key is not the key of its name"]


@pytest.mark.parametrize("record", ["{", "{}", "[]", '{"CID":"Qm"}'])
def test_a_function_that_cannot_be_read_is_named(registry: Registry, record: str) -> None:
    registry.sql("UPDATE functions SET record = ? WHERE seq = 1", record)
    (function,) = registry.wrong()
    assert function.startswith("function 1: ")


def test_all_that_is_wrong_is_named(registry: Registry) -> None:
    registry.path_of(registry.cid).unlink()
    registry.change(registry.live, version="9.9.9")
    registry.sql("UPDATE deactivations SET trigger_sigs = ?", b"\xff" * 65)
    kinds = [line.split()[0] for line in registry.wrong()]
    assert kinds == ["function", "trigger", "trigger", "deactivation"]


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE triggers SET deactivated = 0 WHERE deactivated = 1", "is a deactivation of an active trigger"),
        ("UPDATE events SET subject = zeroblob(65) WHERE seq = 3", "is not stored"),
        ("UPDATE events SET kind = 9 WHERE seq = 3", "its kind 9 is unknown"),
        ("UPDATE events SET kind = 5, facts = '[' WHERE seq = 3", "its facts cannot be read"),
        ("UPDATE events SET kind = 5, facts = '{\"version\":7}' WHERE seq = 3", "its version 7 is newer"),
    ],
)
def test_an_event_that_its_record_contradicts_is_named(registry: Registry, statement: str, fault: str) -> None:
    registry.sql(statement)
    assert [line for line in registry.wrong() if line.startswith("event ") and fault in line]
