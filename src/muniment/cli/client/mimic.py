"""The credentials file of the `mimic` command: one section for each profile, with its API key."""

from __future__ import annotations

import re
from pathlib import Path

from muniment.durable import make_directory, whole_file

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def store(profile: str, api_key: str) -> Path:
    """Put an API key under `profile` into ~/.mimic/credentials; other profiles stay. The result is the file.

    Raises `ValueError` for a name that the file cannot hold.
    """
    if _NAME.fullmatch(profile) is None:
        raise ValueError("the name of a profile of mimic has letters, digits, dots, - and _")
    path = Path.home() / ".mimic" / "credentials"
    make_directory(path.parent)
    kept: list[str] = []
    is_ours = False
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        if line.strip().startswith("["):
            is_ours = line.strip() == f"[{profile}]"
        if not is_ours:
            kept.append(line)
    while kept and not kept[-1].strip():
        kept.pop()
    kept += ["", f"[{profile}]", f"api_key={api_key}", ""] if kept else [f"[{profile}]", f"api_key={api_key}", ""]
    with whole_file(path, is_private=True) as file:
        file.write("\n".join(kept).encode())
    return path
