"""Operators: a key is good until it is revoked, is stored nowhere, and names its operator in the audit log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result
from trigger_world import check_refusal

from muniment.cli.main import main
from muniment.service.context import Context
from operator_client import HEX32, IntentDraft, OperatorClient, hash_of_proposal, log, operator_key, proposal

NothingStored = Callable[[], Any]


def muniment(context: Context, *words: str) -> Result:
    """A command on the database of the application under test."""
    settings = context.settings
    where = ["--data-dir", str(settings.data_dir), "--database-url", settings.database_url]
    return CliRunner().invoke(main, ["operators", *words, *where])


async def typed(context: Context, *words: str) -> Result:
    """The same from inside an event loop: a command has one of its own."""
    return await asyncio.to_thread(muniment, context, *words)


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> OperatorClient:
    return OperatorClient(client, await operator_key(context))


async def test_the_key_that_add_prints_lets_in(client: httpx2.AsyncClient, context: Context) -> None:
    added = await typed(context, "add", "relayer-1")
    assert added.exit_code == 0
    key = added.output.strip()
    assert len(key) == 68
    assert (await OperatorClient(client, key).put(IntentDraft())).status_code == 200


BAD_KEYS: list[tuple[str | None, int, str]] = [
    (None, 401, "missing-credential"),
    ("", 403, "invalid-operator-key"),
    ("nonsense", 403, "invalid-operator-key"),
    ("mno_" + "0" * 64, 403, "invalid-operator-key"),
    ("upper", 403, "invalid-operator-key"),
    ("space", 403, "invalid-operator-key"),
    ("twice", 400, "conflicting-credentials"),
]


@pytest.mark.one_engine
async def test_without_a_good_key_nothing_is_written(
    operator: OperatorClient, nothing_stored: NothingStored, subtests: pytest.Subtests
) -> None:
    of = await operator.recorded()
    odd = {"upper": operator.key.upper(), "space": f"{operator.key} x", "twice": operator.key}
    requests = [
        ("PUT", "", IntentDraft().body), ("POST", "/proposals", proposal()), ("POST", "/logs", log()),
        ("POST", "/status", {"status": "enqueued"}),
    ]  # fmt: skip
    async with nothing_stored():
        for (key, status, code), (method, path, body) in product(BAD_KEYS, requests):
            headers = [] if key is None else [("x-operator-key", odd.get(key, key))] * (2 if key == "twice" else 1)
            with subtests.test(str(key), path=path):
                answer = await operator.client.request(method, f"/intents/{of}{path}", json=body, headers=headers)
                check_refusal(answer, status, code)


async def test_a_revoked_key_is_refused_immediately_and_a_new_key_for_the_name_is_good(
    operator: OperatorClient, context: Context, nothing_stored: NothingStored
) -> None:
    of = await operator.recorded()
    assert (await typed(context, "revoke", "relayer")).exit_code == 0
    async with nothing_stored():
        check_refusal(await operator.append(of, "logs", log()), 403, "invalid-operator-key")
    new = (await typed(context, "add", "relayer")).output.strip()
    assert new != operator.key
    assert (await OperatorClient(operator.client, new).append(of, "logs", log())).status_code == 200
    check_refusal(await operator.append(of, "logs", log()), 403, "invalid-operator-key")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("times", [5, pytest.param(100, marks=pytest.mark.long)])
async def test_the_next_request_after_each_revoke_is_refused(
    client: httpx2.AsyncClient, context: Context, times: int
) -> None:
    """Also while the service reads all the time, so that there is always a view of before."""
    is_over = False

    async def keep_reading() -> None:
        while not is_over:
            await context.database.fetch("SELECT name FROM operators")
            await asyncio.sleep(0.001)

    reading = asyncio.create_task(keep_reading())
    try:
        for number in range(times):
            operator = OperatorClient(client, await operator_key(context, f"relayer-{number}"))
            of = await operator.recorded(IntentDraft(number))
            assert (await typed(context, "revoke", f"relayer-{number}")).exit_code == 0
            check_refusal(await operator.append(of, "logs", log()), 403, "invalid-operator-key")
    finally:
        is_over = True
        await reading


async def test_a_key_is_neither_in_the_database_nor_in_the_logs(
    operator: OperatorClient, context: Context, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    of = await operator.recorded()
    await operator.append(of, "logs", log())
    await operator.client.post(f"/intents/{of}/logs", json=log(), headers={"x-operator-key": operator.key + "0"})
    files = [path for path in Path(context.settings.data_dir).rglob("*") if path.is_file()]
    kept = b"".join(path.read_bytes() for path in files)
    kept += repr(await context.database.fetch("SELECT * FROM operators")).encode()
    assert b"relayer" in kept
    for spelling in (operator.key, operator.key[4:], operator.key[4:24]):
        assert spelling.encode() not in kept
        assert spelling not in caplog.text + "".join(capfd.readouterr())
    assert bytes.fromhex(operator.key[4:]) not in kept


async def test_each_write_is_in_the_audit_log_under_its_operator(operator: OperatorClient, context: Context) -> None:
    other = OperatorClient(operator.client, await operator_key(context, "solver.2"))
    of, named = await operator.recorded(), hash_of_proposal(IntentDraft().hash, proposal())
    await other.append(of, "proposals", proposal())
    await operator.append(of, "logs", log())
    await operator.move(of, "enqueued")
    await other.move(of, "accepted", proposal=named)
    await other.recorded(IntentDraft(2))
    assert (await operator.move(of, "failed")).status_code == 409

    async def audit(*words: str) -> list[tuple[str, str]]:
        said = json.loads((await typed(context, "audit", "--json", *words)).output)
        assert {each["at"] for each in said} == {"2026-11-20T19:48:00.123Z"}
        return [(each["operator"], each["action"]) for each in said]

    entries = [
        ("solver.2", "record"), ("solver.2", "move proposal to accepted"), ("relayer", "move to enqueued"),
        ("relayer", "append log"), ("solver.2", "append proposal"), ("relayer", "record"),
    ]  # fmt: skip
    assert await audit() == entries
    assert await audit("--operator", "relayer") == [each for each in entries if each[0] == "relayer"]
    assert await audit("--intent", of.upper().replace("0X", "0x")) == entries[1:]
    assert await audit("--limit", "2") == entries[:2]
    lines = (await typed(context, "audit", "--limit", "1")).output
    assert lines == f"2026-11-20T19:48:00.123Z  solver.2  record  {IntentDraft(2).hash}\n"


async def test_list_shows_every_operator_and_no_key(context: Context) -> None:
    assert (await typed(context, "list")).output == "no operators; `muniment operators add NAME` adds one\n"
    keys = [(await typed(context, "add", name)).output.strip() for name in ("b", "a")]
    await typed(context, "revoke", "a")
    said = await typed(context, "list", "--json")
    a, b = json.loads(said.output)
    assert (a["name"], b["name"], b["revokedAt"]) == ("a", "b", None)
    assert a["revokedAt"] >= a["createdAt"]
    text = (await typed(context, "list")).output
    assert [line.split()[0] for line in text.splitlines()] == ["a", "b"]
    assert all(key not in said.output + text for key in keys)


async def test_an_address_is_listed_and_stays_with_the_name(context: Context) -> None:
    lower, checked = "0x" + "ab" * 20, "0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB"
    said = json.loads((await typed(context, "add", "a", "--address", lower, "--json")).output)
    assert said["address"] == checked
    await typed(context, "add", "b")
    await typed(context, "revoke", "a")
    assert (await typed(context, "add", "a")).exit_code == 0
    listed = json.loads((await typed(context, "list", "--json")).output)
    assert [each["address"] for each in listed] == [checked, None]
    assert (await typed(context, "list")).output.splitlines()[0].startswith(f"a as {checked} since 20")
    await typed(context, "revoke", "a")
    await typed(context, "add", "a", "--address", "0x" + "cd" * 20)
    assert json.loads((await typed(context, "list", "--json")).output)[0]["address"].lower() == "0x" + "cd" * 20


async def test_add_can_print_json(context: Context) -> None:
    said = json.loads((await typed(context, "add", "a", "--json")).output)
    assert said["name"] == "a"
    assert said["key"].startswith("mno_")


REFUSED = {
    "a name that has a key": (["add", "relayer"], "revoke it first"),
    "an empty name": (["add", ""], "1 to 100"),
    "a name of 101 characters": (["add", "x" * 101], "1 to 100"),
    "a name with a space": (["add", "a b"], "1 to 100"),
    "a name with a line feed": (["add", "a\n"], "1 to 100"),
    "a name in other letters": (["add", "é"], "1 to 100"),
    "an address with a wrong checksum": (["add", "a", "--address", "0xAB" + "ab" * 19], "EIP-55"),
    "an address that is none": (["add", "a", "--address", "0x12"], "40 hex digits"),
    "nobody to revoke": (["revoke", "nobody"], "no operator named nobody"),
    "a hash that is none": (["audit", "--intent", "0x12"], "64 hex digits"),
}


@pytest.mark.one_engine
async def test_a_command_that_fails_prints_one_line(
    context: Context, nothing_stored: NothingStored, subtests: pytest.Subtests
) -> None:
    await operator_key(context)
    async with nothing_stored():
        for row, (words, reason) in REFUSED.items():
            with subtests.test(row):
                said = await typed(context, *words)
                assert said.exit_code == 1
                assert said.output.startswith("Error: ")
                assert said.output.count("\n") == 1
                assert reason in said.output


async def test_an_operators_key_is_refused_by_other_operations(operator: OperatorClient) -> None:
    assert (await operator.client.get("/users/api-key", headers=operator.headers)).status_code == 401
    assert (await operator.client.get(f"/intents/{HEX32}", headers=operator.headers)).status_code == 404
