"""Install npm packages by their lock file, if Node.js is there: those of this directory, or of a given one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(directory: Path) -> None:
    """Run `npm ci` unless what the lock file says is installed already."""
    npm = shutil.which("npm")
    if npm is None:
        print("Node.js is not here: the tests with JavaScript programs are left out")
        return
    lock, marker = directory / "package-lock.json", directory / "node_modules" / ".package-lock.json"
    if not lock.exists() or (marker.exists() and marker.stat().st_mtime >= lock.stat().st_mtime):
        return
    status = subprocess.run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=directory, check=False)
    sys.exit(status.returncode)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
