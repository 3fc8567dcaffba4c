"""The day of sample data of the demo: when a registry gets it, and a filling that is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, LiteralString

import httpx2
import pytest
from tlog_world import KEY, turn

from builders import Wallet, deploy
from conftest import Clock
from guest_functions import SHIPPED, kept
from migrated import migrated_sqlite
from muniment.client import Bundle
from muniment.operate import databases
from muniment.operate.sample_day import filling
from muniment.operate.sample_day.standing import standing
from muniment.operate.sample_day.triggers import DAY_MS, functions
from muniment.operate.sample_day.wallets import FIRST_DEVELOPER, KEYS
from muniment.service.context import Context
from muniment.service.running.settings import Settings
from muniment.service.storage.database import Database

BEGIN_MS: Final = 1_795_204_080_123
SAMPLE: Final = Bundle.read(SHIPPED.parent)
# What is to be equal however often a filling was interrupted; the times of repeated writes are not in it.
ROWS: Final[tuple[LiteralString, ...]] = (
    "SELECT record FROM functions ORDER BY record",
    "SELECT record FROM triggers ORDER BY record",
    "SELECT trigger_sigs, created_at_ms FROM deactivations ORDER BY created_at_ms",
    "SELECT record, status, transaction_hash, execution_hash, proposal_count, log_count FROM intents ORDER BY record",
    "SELECT record, status, transaction_hash FROM intent_proposals ORDER BY record",
    "SELECT record FROM intent_logs ORDER BY record",
    "SELECT record, outputs FROM runs ORDER BY record",
    "SELECT at_ms, action, subject FROM audit_entries WHERE action LIKE 'move %' ORDER BY at_ms, subject",
    "SELECT name, created_at_ms FROM operators",
)


class Killed(BaseException):
    """In place of a signal."""


def rows(settings: Settings) -> Mapping[str, list[Any]]:
    async def read(database: Database) -> dict[str, list[Any]]:
        return {each: [tuple(row) for row in await database.fetch(each)] for each in ROWS}

    return databases.run(settings, read)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Any]]:
    """The rows of a filling that nothing interrupts."""
    settings = Settings(data_dir=tmp_path_factory.mktemp("whole"), log_level="warning")
    (settings.data_dir / "muniment.db").write_bytes(migrated_sqlite().read_bytes())
    filling.fill(settings, SAMPLE, BEGIN_MS)
    return rows(settings)


@pytest.mark.parametrize("database_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True)
def test_an_interrupted_filling_is_completed_without_duplicates(
    settings: Settings, fresh_files: None, whole: Mapping[str, list[Any]], monkeypatch: pytest.MonkeyPatch  # noqa: ARG001 - it makes them
) -> None:  # fmt: skip
    assert standing(settings, BEGIN_MS + DAY_MS) == ("nothing", BEGIN_MS)
    go_to = filling.WalkingClock.go_to
    for steps in (30, 90):
        left = iter(range(steps))

        def walk(self: filling.WalkingClock, ms: int, left: Any = left) -> None:
            if next(left, None) is None:
                raise Killed
            go_to(self, ms)

        monkeypatch.setattr(filling.WalkingClock, "go_to", walk)
        with pytest.raises(Killed):
            filling.fill(settings, SAMPLE, BEGIN_MS)
        # Some hours later.
        assert standing(settings, BEGIN_MS + 2 * DAY_MS) == ("part", BEGIN_MS)
    monkeypatch.undo()
    filling.fill(settings, SAMPLE, BEGIN_MS)
    assert standing(settings, BEGIN_MS + 3 * DAY_MS) == ("all", BEGIN_MS)
    assert rows(settings) == whole


async def test_a_registry_with_records_of_others_stays_as_it_is(
    client: httpx2.AsyncClient, settings: Settings
) -> None:  # fmt: skip
    assert (await asyncio.to_thread(standing, settings, BEGIN_MS)).holds == "nothing"
    await deploy(client, wallet=Wallet(int.from_bytes(KEYS[FIRST_DEVELOPER])))  # everybody has this key
    assert (await asyncio.to_thread(standing, settings, BEGIN_MS)).holds == "others"


async def test_a_registry_whose_transparency_log_has_begun_stays_as_it_is(
    context: Context, settings: Settings, clock: Clock
) -> None:  # fmt: skip
    logged = replace(context.settings, tlog_name="registry.example", tlog_key=KEY)
    await turn(replace(context, settings=logged), clock)
    assert (await asyncio.to_thread(standing, settings, BEGIN_MS)).holds == "others"


@pytest.mark.one_engine
def test_the_functions_of_the_day_are_the_kept_samples(database_url: str) -> None:  # noqa: ARG001 - for the mark
    made = functions(SAMPLE)
    assert {name: made[name].bundle.wasm for name in ("swap", "event")} == {n: kept(n) for n in ("swap", "event")}
    assert made["transfer"].bundle == SAMPLE
    assert made["payroll"].bundle.wasm == SAMPLE.wasm
