"""The hot operations on PostgreSQL."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import msgspec

import many_triggers
from on_sqlite import check_peer
from samples import INPUTS, forged, signed_triggers
from server import CURVES, PEER, Server, check_answers, deploy, has_peer, muniment, register, start_peer
from traffic import Loads, Scale, Traffic, take_turns

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see that one.
_postgres: Any = import_module("postgres")

_CONFIG = "shared_buffers = 512MB\nmax_connections = 100\n"
_COLUMNS = ["seq", "sig", "signer", "digest", "deactivated", "created_at_ms", "record"]


def measure(scale: Scale) -> Loads:
    """Operation to server to its rounds, on a private cluster with fsync."""
    with tempfile.TemporaryDirectory() as folder, _postgres.Cluster(fsync=True, config=_CONFIG) as cluster:
        data = Path(folder) / "data"
        ours = asyncio.run(cluster.create_database("ours"))
        asyncio.run(many_triggers.load(ours, triggers=scale.rows_on_postgres))
        with muniment(data, database_url=ours) as service, httpx2.Client(base_url=service.url) as client:
            cid = deploy(client)
            seeded = signed_triggers(range(scale.registered), cid)
            register(service, seeded)
        urls = {name: asyncio.run(_for_peer(cluster, ours, cid, name)) for name in CURVES if has_peer()}
        return _loads(scale, ours, data, urls, cid, seeded)


async def _for_peer(cluster: Any, ours: str, cid: str, name: str) -> str:
    """The same triggers in a database of the peer's own."""
    url = await cluster.create_database(f"peer_{CURVES[name]}")
    theirs: Any = await asyncpg.connect(url)
    source: Any = await asyncpg.connect(ours)
    with tempfile.TemporaryFile() as rows:
        query = f"SELECT {', '.join(_COLUMNS)} FROM triggers ORDER BY seq"
        await theirs.execute((PEER / "schema.postgres.sql").read_text("utf-8"))
        await theirs.execute("INSERT INTO functions VALUES ($1, $2)", cid, msgspec.json.encode(INPUTS).decode())
        await source.copy_from_query(query, output=rows, format="binary")
        rows.seek(0)
        await theirs.copy_to_table("triggers", source=rows, columns=_COLUMNS, format="binary")
        await theirs.execute("SELECT setval('triggers_seq_seq', (SELECT max(seq) FROM triggers))")
        await theirs.execute("VACUUM (ANALYZE)")
    await theirs.close()
    await source.close()
    return url


def _loads(scale: Scale, url: str, data: Path, urls: Mapping[str, str], cid: str, seeded: list[bytes]) -> Loads:
    new, wrong = signed_triggers([len(seeded)], cid)[0], forged(cid)
    with ExitStack() as stack:
        servers: dict[str, Server] = {"muniment": stack.enter_context(muniment(data, database_url=url))}
        with httpx2.Client(base_url=servers["muniment"].url) as client:
            given = check_answers(client, seeded, new, wrong)
        for name, peer_url in urls.items():
            servers[name] = stack.enter_context(start_peer(name, peer_url))
            check_peer(servers[name].url, given, seeded, new, wrong)
        return take_turns(servers, Traffic(scale, cid, seeded), scale)
