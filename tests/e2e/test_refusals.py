"""Clients of Node.js send a whole body before they read: a refusal reaches them, also through a proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from javascript import NODE_TESTS, run_script

from nginx import WAYS, reached
from service import Service

pytestmark = NODE_TESTS

BODY_BYTES, TIMES = 20_000_000, 5


@pytest.fixture(params=WAYS)
def url(request: pytest.FixtureRequest, service: Service, tmp_path: Path) -> Iterator[str]:
    with reached(service.url, request.param, tmp_path / "nginx") as found:
        yield found


def test_a_refusal_reaches_fetch_and_axios(url: str) -> None:
    statuses = json.loads(run_script("sends_first.mjs", f"{url}/users/nonce", str(BODY_BYTES), str(TIMES)))
    assert statuses == {"fetch": [413] * TIMES, "axios": [413] * TIMES}
