"""Install the peer's npm packages by its lock file, and build its native module, where Node.js and a compiler are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
_SQLITE = HERE / "node_modules" / "better-sqlite3"
_BUILT = _SQLITE / "build" / "Release" / "better_sqlite3.node"


def main() -> None:
    """Install what is not installed yet; without Node.js, say that the peer is left out."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        print("Node.js is not here: the peer is left out")
        return
    lock, marker = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
    if not marker.exists() or marker.stat().st_mtime < lock.stat().st_mtime:
        # No package's script runs; secp256k1 brings its library ready, and SQLite is built below, of the sources in it.
        _run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], HERE)
    if not _BUILT.exists():
        print("Building better-sqlite3, which takes a minute or two")
        _run([npm, "run", "--silent", "build-release"], _SQLITE, _headers(Path(node)))


def _headers(node: Path) -> dict[str, str]:
    """Node's own headers where they came with it; else node-gyp fetches them."""
    prefix = node.resolve().parents[1]
    return {"npm_config_nodedir": str(prefix)} if (prefix / "include" / "node" / "node.h").exists() else {}


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=folder, check=False, env={**os.environ, **(environment or {})})
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
