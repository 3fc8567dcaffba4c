"""Requests that are broken in every way, a thousand to each way in; `make fuzz` sends a hundred thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzing import judge_server
from nginx import WAYS


@pytest.mark.parametrize("way", WAYS)
def test_whatever_is_sent_is_answered_in_order_or_refused_and_ends(tmp_path: Path, way: str) -> None:
    judge_server(tmp_path, way, seed=1, requests=1_500 if way == "direct" else 750)
