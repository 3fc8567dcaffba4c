"""Fixtures of a log with witnesses: the witnesses, its settings, and the integrator.

A test module has these settings by a fixture `settings` of its own, which returns `watched`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import Clock
from limitless import unlimited_settings
from muniment.protocol.log.notes import keys_of_log
from muniment.service.context import Context
from muniment.service.resources.log.integrator import Integrator
from muniment.service.running.settings import Settings
from witness_site import WitnessSite, sites, write_policy

NAME = "registry.example"
SECRET = "22" * 32
KEYS = keys_of_log(f"{NAME}/log/1", bytes.fromhex(SECRET))
LOG = KEYS[0].verifier


@pytest.fixture
def quorum() -> str:
    """Quorum of the policy; a test may override it by a parameter."""
    return "all"


@pytest.fixture
def count() -> int:
    """Number of witnesses; a test may override it by a parameter."""
    return 2


@pytest.fixture
def witnesses(clock: Clock, count: int) -> Iterator[list[WitnessSite]]:
    """Running witnesses that know the log."""
    with sites(count, lambda: clock() // 1000) as found:
        for site in found:
            site.trust(LOG)
        yield found


@pytest.fixture
def watched(tmp_path: Path, database_url: str, witnesses: list[WitnessSite], quorum: str) -> Settings:
    """The settings of a log whose policy has these witnesses."""
    path = tmp_path / "policy"
    write_policy(path, witnesses, quorum)
    plain = unlimited_settings(data_dir=tmp_path / "data", database_url=database_url, log_level="warning")
    return replace(plain, tlog_name=NAME, tlog_key=SECRET, tlog_policy=str(path))


@pytest.fixture
async def integrator(context: Context) -> AsyncIterator[Integrator]:
    """An integrator that asks the witnesses."""
    made = Integrator(context)
    yield made
    await made.close()
