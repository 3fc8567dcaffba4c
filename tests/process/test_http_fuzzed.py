"""A thousand broken requests, directly and through nginx; `make fuzz` sends a hundred thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzing import judge_server
from nginx import WAYS


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_every_request_is_answered_in_order_or_refused_with_the_end_of_the_connection(tmp_path: Path, way: str) -> None:
    judge_server(tmp_path, way, seed=1, requests=1_500 if way == "direct" else 750)
