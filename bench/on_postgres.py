"""The hot operations on PostgreSQL: Muniment, the peer, and pgbench that inserts the same row."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import msgspec

import many_triggers
import peer
from on_sqlite import check_peer
from ours import check_answers, deploy, muniment, register
from samples import INPUTS, forged, signed_triggers
from scale import Scale
from server import CONNECTIONS, Server
from traffic import CREATE, Loads, Traffic, take_turns

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see that one.
_postgres: Any = import_module("postgres")

BESIDE_PGBENCH = "muniment, beside pgbench"
TWO_PROCESSES = "muniment, two processes, beside pgbench"
_CONFIG = "shared_buffers = 512MB\nmax_connections = 100\n"
_COLUMNS = ["seq", "sig", "signer", "digest", "deactivated", "created_at_ms", "record"]
# The row of a trigger as Muniment stores it, in its table and under its indexes; only what must differ is made up.
_INSERT = """
INSERT INTO triggers (sig, signer, digest, function_digest, protocol, end_date_ms, created_at_ms, record)
VALUES (sha256(random()::text::bytea) || sha256(random()::text::bytea) || '\\x1b'::bytea, '{signer}'::bytea,
        sha256(random()::text::bytea), '{function_digest}'::bytea, 'Mimic', 0, {created_at_ms}, '{record}');
"""


@dataclass
class Measured:
    """What was found; `pgbench` has inserts per wall second by round."""

    loads: Loads = field(default_factory=dict)
    pgbench: list[float] = field(default_factory=list)


def measure(scale: Scale) -> Measured:
    """A cluster of our own, where a commit is on the disk (fsync) before it is answered."""
    with tempfile.TemporaryDirectory() as folder, _postgres.Cluster(fsync=True, config=_CONFIG) as cluster:
        data = Path(folder) / "data"
        ours = asyncio.run(cluster.create_database("ours"))
        asyncio.run(many_triggers.load(ours, triggers=scale.rows_on_postgres))
        with muniment(data, database_url=ours) as service, httpx2.Client(base_url=service.url) as client:
            cid = deploy(client)
            seeded = signed_triggers(range(scale.registered), cid)
            register(service, seeded)
        asyncio.run(_copy_ours(cluster))
        urls = {name: asyncio.run(_for_peer(cluster, ours, cid, name)) for name in peer.CURVES if peer.is_installed()}
        return _measured(scale, cluster, data, urls, cid, seeded)


async def _copy_ours(cluster: Any) -> None:
    """A database for pgbench, as large as the service's."""
    await cluster.execute("CREATE DATABASE bench TEMPLATE ours")
    await cluster.execute("CHECKPOINT")


async def _for_peer(cluster: Any, ours: str, cid: str, name: str) -> str:
    """The same triggers in a database of the peer's own."""
    url = await cluster.create_database(f"peer_{peer.CURVES[name]}")
    theirs: Any = await asyncpg.connect(url)
    source: Any = await asyncpg.connect(ours)
    with tempfile.TemporaryFile() as rows:
        query = f"SELECT {', '.join(_COLUMNS)} FROM triggers ORDER BY seq"
        await theirs.execute((peer.FOLDER / "schema.postgres.sql").read_text("utf-8"))
        await theirs.execute("INSERT INTO functions VALUES ($1, $2)", cid, msgspec.json.encode(INPUTS).decode())
        await source.copy_from_query(query, output=rows, format="binary")
        rows.seek(0)
        await theirs.copy_to_table("triggers", source=rows, columns=_COLUMNS, format="binary")
        await theirs.execute("SELECT setval('triggers_seq_seq', (SELECT max(seq) FROM triggers))")
        await theirs.execute("VACUUM (ANALYZE)")
    await theirs.close()
    await source.close()
    return url


def _measured(
    scale: Scale, cluster: Any, data: Path, urls: Mapping[str, str], cid: str, seeded: list[bytes]
) -> Measured:
    new, wrong = signed_triggers([len(seeded)], cid)[0], forged(cid)
    script = asyncio.run(_script(cluster))
    found = Measured()
    with ExitStack() as stack:
        servers: dict[str, Server] = {"muniment": stack.enter_context(muniment(data, database_url=cluster.url("ours")))}
        with httpx2.Client(base_url=servers["muniment"].url) as client:
            given = check_answers(client, seeded, new, wrong)
        for name, url in urls.items():
            servers[name] = stack.enter_context(peer.start(name, url))
            check_peer(servers[name].url, given, seeded, new, wrong)
        traffic = Traffic(scale, cid, seeded)
        found.loads = take_turns(servers, traffic, scale)
        pair = stack.enter_context(muniment(data, database_url=cluster.url("ours"), workers=2))
        services = {BESIDE_PGBENCH: servers["muniment"], TWO_PROCESSES: pair}
        _take_turns_with_pgbench(found, scale, cluster, services, traffic, script)
    return found


def _take_turns_with_pgbench(
    found: Measured, scale: Scale, cluster: Any, services: Mapping[str, Server], traffic: Traffic, script: str
) -> None:
    """Creates again, by one process and by two, each round beside one of pgbench: what is compared is by the clock."""
    for name in services:
        found.loads[CREATE][name] = []
    for number in range(scale.rounds + 1):
        loads = {name: service.load(traffic.creates()) for name, service in services.items()}
        rate = _pgbench(cluster, script, scale.pgbench_seconds)
        if number:
            for name, load in loads.items():
                found.loads[CREATE][name].append(load)
            found.pgbench.append(rate)


async def _script(cluster: Any) -> str:
    rows = await cluster.execute(
        "SELECT signer, function_digest, created_at_ms, record FROM triggers ORDER BY seq DESC LIMIT 1", "bench"
    )
    signer, function_digest, created_at_ms, record = rows[0]
    # pgbench takes a colon and a name for a variable of its own; none of the record's colons has a name behind it.
    assert re.search(r":[A-Za-z_]", record) is None
    return _INSERT.format(
        signer="\\x" + signer.hex(), function_digest="\\x" + function_digest.hex(), created_at_ms=created_at_ms,
        record=record.replace("'", "''"),
    )  # fmt: skip


def _pgbench(cluster: Any, script: str, seconds: int) -> float:
    """Inserts per second by as many clients as the load generator has connections, statements prepared."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script.replace("\n", " ") + "\n")
        file.flush()
        Path(file.name).chmod(0o644)
        said = cluster.run(
            "pgbench", "-n", "-M", "prepared", "-c", CONNECTIONS, "-j", 1, "-T", seconds, "-f", file.name,
            "-h", "127.0.0.1", "-p", cluster.port, "-U", "muniment", "bench",
        )  # fmt: skip
    found = re.search(r"tps = ([0-9.]+) \(without", said) or re.search(r"tps = ([0-9.]+)", said)
    assert found is not None, said
    return float(found[1])
