"""`muniment database copy`: the new service answers as the old one did, and goes on where it stopped."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import LiteralString

import pytest

import warm
from answers import ok
from builders import Bundle, TriggerDraft, Wallet, log_in
from copying_world import OWNERS, Filled, Place, copy_all, fill, new_database, opened, read_page, run, served, walk
from muniment.service.storage.registry_copy import LEFT, TABLES
from operator_client import IntentDraft, OperatorClient
from postgres import Cluster
from terminal import shown_on

DIRECTIONS = [("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "sqlite"), ("postgres", "postgres")]
all_ways = pytest.mark.parametrize(("engine", "to"), DIRECTIONS)
both_ways = pytest.mark.parametrize(("engine", "to"), DIRECTIONS[:2])


@pytest.fixture(scope="module")
def filled_once(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Filled]:
    """A filled registry on an engine, which is made once and copied by `filled`."""

    @cache
    def made(engine: str) -> Filled:
        data_dir = tmp_path_factory.mktemp("filled") / "data"
        if engine == "sqlite":
            return asyncio.run(fill(Place.at("sqlite:///old.db", data_dir)))
        return asyncio.run(fill(asyncio.run(new_database(cluster, f"filled-{data_dir.parent.name}", data_dir))))

    return made


@pytest.fixture
def filled(engine: str, cluster: Cluster, tmp_path: Path, filled_once: Callable[[str], Filled]) -> Filled:
    """The registry that is copied."""
    once, data_dir = filled_once(engine), tmp_path / "data"
    shutil.copytree(once.place.settings.data_dir, data_dir)
    url = once.place.url
    if engine == "postgres":
        url = asyncio.run(cluster.create_database(f"old-{tmp_path.name}", url.rpartition("/")[2]))
    return replace(once, place=Place.at(url, data_dir), clock=replace(once.clock))


@pytest.fixture
def target(to: str, cluster: Cluster, tmp_path: Path) -> Place:
    """An empty database; SQLite's is not there yet. It is served with the same secrets."""
    if to == "sqlite":
        return Place.at("sqlite:///new.db", tmp_path / "data")
    return asyncio.run(new_database(cluster, f"new-{tmp_path.name}", tmp_path / "data"))


@all_ways
def test_the_new_service_answers_byte_for_byte_what_the_old_one_does(filled: Filled, target: Place) -> None:
    before = filled.place.rows()
    assert all(before.values()), "there is a row of every kind"
    result = copy_all(filled.place, target, "--json")
    told = json.loads(result.stdout)
    assert told["tables"] == {name: len(rows) for name, rows in before.items()}
    assert (told["rows"], told["changed_meanwhile"]) == (sum(map(len, before.values())), False)
    assert target.rows() == before == filled.place.rows()

    async def both() -> None:
        async with served(filled.place, filled.clock) as old, served(target, filled.clock) as new:
            assert await filled.answers(new) == await filled.answers(old)

    asyncio.run(both())
    verified = run("verify", data=target.settings.data_dir, MUNIMENT_DATABASE_URL=target.url)
    assert verified.exit_code == 0, verified.output


@both_ways
def test_credentials_stay_valid_or_revoked_on_the_new_side(filled: Filled, target: Place) -> None:
    copy_all(filled.place, target)

    async def use() -> None:
        async with served(target, filled.clock) as client:
            data, path = Bundle("Third", inputs={}).files, f"/users/{OWNERS[0].address}/data"
            old = await client.post("/functions", files=data, headers={"x-api-key": filled.api_key_before})
            assert old.status_code == 403, "the key before was rotated out"
            good = await client.post("/functions", files=data, headers={"x-api-key": filled.api_key})
            assert good.status_code == 200
            profile = ok(await client.get(path, headers={"x-auth-token": filled.token})).json()
            assert (profile["name"], profile["email"]) == ("Zoë “0” ✓", "zoe@example.org")
            for body in filled.deactivated:
                answer = await client.post("/triggers", json=body)
                assert (answer.status_code, answer.json()["code"]) == (409, "trigger-deactivated")
            taken = Bundle(inputs={"other": "bool"}).files
            again = await client.post("/functions", files=taken, headers={"x-api-key": filled.api_key})
            assert (again.status_code, again.json()["code"]) == (400, "version-taken")
            assert (await OperatorClient(client, filled.operator_key).put(IntentDraft(60))).status_code == 200
            assert (await OperatorClient(client, filled.revoked_operator_key).put(IntentDraft(61))).status_code == 403

    asyncio.run(use())


@both_ways
def test_a_login_is_not_taken_twice_by_the_new_side(filled: Filled, target: Place) -> None:
    filled.clock.advance(hours=-2)  # back to when its nonce was good
    copy_all(filled.place, target)

    async def again() -> None:
        async with served(target, filled.clock) as client:
            before = await client.post("/users/nonce", json={"address": OWNERS[0].address})
            assert before.status_code == 200
            refused = await client.post("/users/authenticate", json=filled.used_login)
            assert (refused.status_code, refused.json()["code"]) == (401, "login-failed")
            assert await log_in(client, OWNERS[0])

    asyncio.run(again())


@all_ways
def test_a_cursor_of_the_old_service_goes_on_at_the_new_one(filled: Filled, target: Place) -> None:
    copy_all(filled.place, target)

    async def follow() -> None:
        async with served(filled.place, filled.clock) as old, served(target, filled.clock) as new:
            for what in ("triggers", "intents", "functions", "executions"):
                for sort in (1, -1):
                    whole = await walk(old, f"/{what}?sort={sort}&limit=100")
                    assert len(whole) > 1, what
                    first, link = await read_page(old, f"/{what}?sort={sort}&limit={len(whole) // 2}")
                    assert link, what
                    assert first + await walk(new, link) == whole, (what, sort)

    asyncio.run(follow())


@all_ways
def test_a_client_that_follows_a_listing_gets_new_rows_after_the_copied_ones(filled: Filled, target: Place) -> None:
    if target.is_sqlite is False and filled.place.is_sqlite:
        # Above what the transactions of this cluster have come to: as after years on another one.
        filled.place.change(
            ("DELETE FROM run_records", ()),
            ("DELETE FROM runs", ()),  # they refer to the numbers of triggers
            ("UPDATE triggers SET seq = seq + ?", (2**50,)),
        )
    copy_all(filled.place, target)

    async def go_on() -> None:
        async with served(filled.place, filled.clock) as old:
            _, end = await read_page(old, "/triggers?sort=1&limit=100")
            _, end_of_intents = await read_page(old, "/intents?sort=1&limit=100")
        assert end
        assert end_of_intents
        async with served(target, filled.clock) as new:
            body = TriggerDraft(
                filled.cid, OWNERS[0], {"limit": "uint256"}, version="9.0.0", input={"limit": "5"}
            ).signed()
            added = ok(await new.post("/triggers", json=body)).json()
            assert await walk(new, end) == [added]
            assert ok(await new.get("/triggers?limit=1")).json() == [added]
            of = await OperatorClient(new, filled.operator_key).recorded(IntentDraft(70))
            assert [each["hash"] for each in await walk(new, end_of_intents)] == [of]

    asyncio.run(go_on())


@pytest.mark.parametrize("engine", ["sqlite"])
def test_there_and_back_again_are_the_same_rows(filled: Filled, cluster: Cluster, tmp_path: Path) -> None:
    between = asyncio.run(new_database(cluster, f"between-{tmp_path.name}", tmp_path / "data"))
    back = Place.at("sqlite:///back.db", tmp_path / "data")
    copy_all(filled.place, between)
    copy_all(between, back)
    assert back.rows() == between.rows() == filled.place.rows()


@pytest.mark.parametrize("engine", ["postgres"])
@pytest.mark.parametrize("to", ["sqlite"])
def test_times_that_do_not_follow_the_order_are_listed_rightly_by_one_writer_too(
    filled: Filled, target: Place, tmp_path: Path
) -> None:
    # As of processes that write at the same time: the row before is younger by two seconds and a half.
    for table in ("triggers", "intents"):
        sixth = f"(SELECT seq FROM {table} ORDER BY seq LIMIT 1 OFFSET 5)"
        filled.place.change((f"UPDATE {table} SET created_at_ms = created_at_ms + 2500 WHERE seq = {sixth}", ()))
    copy_all(filled.place, target)
    onward = Place.at("sqlite:///onward.db", tmp_path / "data")
    copy_all(target, onward)

    async def compare() -> None:
        async with opened(filled.place) as context:
            triggers = await context.database.fetch("SELECT created_at_ms FROM triggers")
            intents = await context.database.fetch("SELECT created_at_ms FROM intents")
        times = [("triggers", at) for (at,) in triggers] + [("intents", at) for (at,) in intents]
        async with served(filled.place) as old, served(target) as new, served(onward) as third:
            for what, at in times:
                for bound in (f"createdAfter={at}", f"createdBefore={at}"):
                    path = f"/{what}?limit=100&{bound}"
                    told = ok(await old.get(path)).json()
                    assert ok(await new.get(path)).json() == told == ok(await third.get(path)).json(), path

    asyncio.run(compare())


CATALOGUES: dict[str, LiteralString] = {
    "sqlite": """SELECT t.name, c.name FROM sqlite_master t LEFT JOIN pragma_table_info(t.name) c ON c.pk > 0
        WHERE t.type = 'table' ORDER BY t.name, c.pk""",
    "postgres": """SELECT c.relname, a.attname FROM pg_class c
        LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
        LEFT JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k (attnum, n) ON true
        LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
        WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace ORDER BY c.relname, k.n""",
}


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_no_table_of_the_schema_is_forgotten(engine: str, cluster: Cluster, tmp_path: Path) -> None:
    place = Place.at("sqlite:///any.db", tmp_path)
    if engine == "postgres":
        place = asyncio.run(new_database(cluster, f"any-{tmp_path.name}", tmp_path))
    keys: dict[str, tuple[str, ...]] = {}
    for table, column in place.do(lambda context: context.database.fetch(CATALOGUES[engine])):
        keys[table] = (*keys.get(table, ()), column)
    if engine == "sqlite":  # which numbers rows by their key alone; the signature is as unique there
        assert keys.pop("deactivations") == ("seq",)
        keys["deactivations"] = ("signature",)
    assert [each.name for each in TABLES if each.key != keys.pop(each.name)] == []
    assert set(keys) == set(LEFT) - ({"sqlite_sequence"} if engine == "postgres" else set())


@both_ways
def test_the_summary_and_the_bar_say_how_much_and_how_fast(filled: Filled, target: Place) -> None:
    copied = run("blocks", "copy", filled.place.blocks, target.blocks, data=target.settings.data_dir)
    assert copied.exit_code == 0
    terminal, other_end = os.openpty()
    words = ["database", "copy", filled.place.url, target.url, "--data-dir", str(target.settings.data_dir)]
    process = warm.popen(words, {**os.environ, "PYTHONPATH": str(warm.UNHURRIED)}, stderr=other_end)
    os.close(other_end)
    shown = shown_on(terminal).decode()
    told, _ = process.communicate(timeout=60)
    assert process.wait() == 0, shown
    count = sum(map(len, filled.place.rows().values()))
    assert f"{count}/{count}" in shown
    assert "rows/s" in shown
    *tables, total = told.splitlines()
    assert dict(line.split() for line in tables) == {name: str(len(rows)) for name, rows in filled.place.rows().items()}
    assert total.startswith(f"{count} rows copied in ")
    assert total.endswith("rows/s); the counts match")


def test_the_service_s_own_database_has_a_word(tmp_path: Path, postgres_url: str) -> None:
    assert run("migrate", data=tmp_path).exit_code == 0
    owner = Wallet(1).address
    with sqlite3.connect(tmp_path / "muniment.db") as connection:
        connection.execute("INSERT INTO users (address, created_at_ms) VALUES (?, 5)", (bytes.fromhex(owner[2:]),))
    connection.close()
    assert run("database", "copy", "database:", postgres_url, data=tmp_path).exit_code == 0
    own = {"MUNIMENT_DATABASE_URL": postgres_url}
    result = run("database", "copy", "database:", "sqlite:///third.db", "--json", data=tmp_path, **own)
    assert json.loads(result.stdout)["tables"]["users"] == 1
