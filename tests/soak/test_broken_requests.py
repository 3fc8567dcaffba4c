"""`make fuzz`: FUZZ_REQUESTS requests (10^5) to the server, and as many through nginx in two forms, by FUZZ_SEED."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from fuzzing import judge_server
from nginx import WAYS

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "100000"))
SEED = int(os.environ.get("FUZZ_SEED") or secrets.randbits(32))


@pytest.mark.parametrize("way", WAYS)
def test_whatever_is_sent_is_answered_in_order_or_refused_and_ends(tmp_path: Path, way: str) -> None:
    judge_server(tmp_path, way, seed=SEED, requests=REQUESTS)
