"""The checks of PostgreSQL, each on a server, a role, a pooler or a clock with one fault."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from breaking import breaks
from muniment.operate.doctor import database as checks_of_database
from muniment.operate.doctor.database import check_clock, check_migrations, check_replicas, check_server, judge_server
from muniment.operate.doctor.findings import Examined, Finding, Level
from muniment.service.running.settings import Settings
from muniment.service.storage import open_database
from muniment.service.storage.database import Database
from muniment.service.storage.postgres.admin.inspection import state_of
from postgres import Cluster
from rewriting_proxy import as_behind_a_pooler, as_in_transaction_mode, rewriting_proxy

NOWHERE = "postgresql://muniment@127.0.0.1:9/muniment"


def level_of(findings: list[Finding]) -> dict[str, str]:
    """The name of each check with a fault, and the message."""
    return {found.check: found.message for found in findings if found.level}


def server(url: str) -> Examined:
    return Examined(Settings(database_url=url))


@pytest.fixture
async def opened(postgres_url: str) -> AsyncIterator[Database]:
    database = open_database(postgres_url, data_dir=Path())
    yield database
    await database.close()


async def through(url: str, rewrite: Callable[[bytes], bytes]) -> list[Finding]:
    """The findings behind a proxy that rewrites what the service sends."""
    async with rewriting_proxy(url, rewrite) as front:
        return await check_server(server(front))


async def test_a_healthy_server_has_no_finding(postgres_url: str, opened: Database) -> None:
    assert level_of(await through(postgres_url, lambda piece: piece)) == {}
    assert (await check_migrations(Examined(Settings(), opened=opened))).level == Level.OK


async def test_a_database_without_migrations_fails_with_the_command(cluster: Cluster, tmp_path: Path) -> None:
    database = open_database(await cluster.create_database("unmigrated_for_doctor"), data_dir=tmp_path)
    found = await check_migrations(Examined(Settings(), opened=database))
    await database.close()
    assert (found.level, found.remedy) == (Level.FAIL, "muniment migrate")


@breaks("server")
async def test_a_server_that_does_not_answer_fails() -> None:
    assert list(level_of(await check_server(server(NOWHERE)))) == ["server"]


async def test_a_read_only_server_fails(postgres_url: str) -> None:
    found = level_of(await check_server(server(f"{postgres_url}?default_transaction_read_only=on")))
    assert found == {"rights": "the server takes no writes: default_transaction_read_only is on"}


async def test_a_role_without_rights_fails_with_the_tables(cluster: Cluster, postgres_url: str) -> None:
    await cluster.execute("DROP ROLE IF EXISTS stranger")
    await cluster.execute("CREATE ROLE stranger LOGIN")
    found = level_of(await check_server(server(postgres_url.replace("//muniment@", "//stranger@"))))
    await cluster.execute("DROP ROLE stranger")
    assert found["rights"].startswith("this user may not use ")
    assert "triggers" in found["rights"]


async def test_a_role_needs_no_rights_to_tables_of_others_and_only_reads_the_list_of_migrations(
    cluster: Cluster, postgres_url: str
) -> None:
    name = postgres_url.rpartition("/")[2]
    for statement in (
        "CREATE ROLE servant LOGIN", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO servant",
        "REVOKE INSERT, UPDATE, DELETE ON schema_migrations FROM servant", "CREATE ROLE other",
        "CREATE TABLE maps (id bigint)", "ALTER TABLE maps OWNER TO other",
    ):  # fmt: skip
        await cluster.execute(statement, name)
    servant = postgres_url.replace("//muniment@", "//servant@")
    try:
        assert level_of(await check_server(server(servant))) == {"rights": "this user may not use row_numbers"}
        await cluster.execute("GRANT USAGE ON SEQUENCE row_numbers TO servant", name)
        assert level_of(await check_server(server(servant))) == {}
        await cluster.execute("REVOKE SELECT ON schema_migrations FROM servant", name)
        assert level_of(await check_server(server(servant))) == {"rights": "this user may not use schema_migrations"}
        database = open_database(servant, data_dir=Path())
        found = await check_migrations(Examined(Settings(), opened=database))
        await database.close()
        assert found.message == "the database refuses this role: grant it the rights that `muniment doctor` names"
    finally:
        for statement in ("DROP TABLE maps", "DROP OWNED BY servant", "DROP ROLE servant", "DROP ROLE other"):
            await cluster.execute(statement, name)


@breaks("session settings")
async def test_a_pooler_that_drops_a_setting_of_the_session_fails(postgres_url: str) -> None:
    def forget_timeout(piece: bytes) -> bytes:
        return re.sub(rb"(?<=statement_timeout\x00)\d+", lambda found: b"0" * len(found[0]), piece)

    assert level_of(await through(postgres_url, forget_timeout)) == {"session settings": "statement_timeout is 0"}


async def test_a_pooler_that_forgets_the_durability_fails(postgres_url: str) -> None:
    def only_this_transaction(piece: bytes) -> bytes:
        return piece.replace(b"'on', false)", b"'on', true )")

    found = level_of(await through(f"{postgres_url}?synchronous_commit=off", only_this_transaction))
    assert found == {"session settings": "synchronous_commit is off"}
    assert (
        level_of(await check_server(server(f"{postgres_url}?synchronous_commit=off"))) == {}
    )  # the service sets it itself


@breaks("pooler")
async def test_a_pooler_that_mixes_sessions_fails(postgres_url: str) -> None:
    assert list(level_of(await through(postgres_url, as_in_transaction_mode))) == ["pooler"]
    assert level_of(await through(postgres_url, as_behind_a_pooler)) == {}


@breaks("connections", "transactions")
async def test_an_old_transaction_and_used_up_connections_are_warnings(postgres_url: str) -> None:
    idle = await asyncpg.connect(postgres_url)
    await idle.execute("BEGIN")
    await idle.execute("SELECT 1")
    await asyncio.sleep(0.2)
    state = await state_of(postgres_url)
    await idle.close()
    assert state.oldest_transaction_s >= 0.2
    assert 2 <= state.connections < state.connections_max
    faults = judge_server(replace(state, oldest_transaction_s=61, connections=state.connections_max))
    assert list(level_of(faults)) == ["connections", "transactions"]
    assert list(level_of(judge_server(replace(state, is_standby=True)))) == ["rights"]


@breaks("clock")
@pytest.mark.parametrize(("ahead_s", "level"), [(0, 0), (30, 1), (-30, 1), (3600, 2)])
async def test_a_clock_that_differs_from_the_servers_is_noticed(opened: Database, ahead_s: int, level: int) -> None:
    found = await check_clock(Examined(Settings(), now_s=time.time() + ahead_s, opened=opened))
    assert found.level == level
    assert level == 0 or ("ahead of" if ahead_s > 0 else "behind") in found.message


@breaks("replica")
async def test_replicas_that_do_not_answer_or_are_none_are_warnings(postgres_url: str) -> None:
    settings = Settings(database_url=postgres_url, database_read_urls=f"{postgres_url},{NOWHERE}", replica_lag_s_max=1)
    found = level_of(await check_replicas(Examined(settings)))
    assert found["replica 1"].endswith("or is not its replica")
    assert found["replica 2"].startswith("the database cannot be reached")


async def test_a_replica_that_stops_replaying_is_a_warning(
    cluster: Cluster, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.replica() as replica:
        settings = Settings(
            database_url=postgres_url, database_read_urls=replica.url(urlsplit(postgres_url).path[1:]),
            replica_lag_s_max=60,
        )  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setattr(checks_of_database, "_REPLICA_SECONDS_MAX", 60)
            assert level_of(await check_replicas(Examined(settings))) == {}
        await replica.execute("SELECT pg_wal_replay_pause()")
        for statement in ("CREATE TABLE moved_on (id int)", "DROP TABLE moved_on"):
            await cluster.execute(statement)
        assert list(level_of(await check_replicas(Examined(settings)))) == ["replica 1"]


async def test_a_replica_of_another_primary_is_a_warning(cluster: Cluster) -> None:
    with cluster.replica() as replica, Cluster() as other:  # a new server has written less than the other
        settings = Settings(database_url=other.url(), database_read_urls=replica.url(), replica_lag_s_max=3)
        assert list(level_of(await check_replicas(Examined(settings)))) == ["replica 1"]
