"""The golden vectors of tests/vectors/evm, read once."""

import json
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[2] / "vectors" / "evm"


@cache
def cases(name: str) -> list[dict[str, Any]]:
    document = json.loads((_FOLDER / f"{name}.json").read_text("utf-8"))
    return [_filled(case) for case in document["cases"]]


def key_of(label: str) -> bytes:
    document = json.loads((_FOLDER / "eip712_trigger_valid.json").read_text("utf-8"))
    return next(bytes.fromhex(key["privateKey"][2:]) for key in document["keys"] if key["label"] == label)


def _filled(case: dict[str, Any]) -> dict[str, Any]:
    if fill := case.get("fill"):
        place = case["values"]
        for part in fill["path"][:-1]:
            place = place[part]
        place[fill["path"][-1]] = list(range(fill["count"]))
    return case
