"""The peer: a registry on today's usual stack (bench/peers), with ethers' own curve or a native one."""

from __future__ import annotations

import shutil
from pathlib import Path

from server import HERE, Server

FOLDER = HERE / "peers"
CURVES = {"peer": "ethers", "peer, native curve": "secp256k1"}


def is_installed() -> bool:
    """Whether bench/peers/install.py has installed it."""
    built = FOLDER / "node_modules" / "better-sqlite3" / "build" / "Release" / "better_sqlite3.node"
    return shutil.which("node") is not None and built.exists()


def start(name: str, database: Path | str) -> Server:
    """The peer called `name` on a SQLite file or a PostgreSQL URL."""
    return Server(["node", str(FOLDER / "peer.mjs"), str(database), CURVES[name]])
