"""The day of sample data of the demo: when a registry gets it, and a filling that is interrupted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import httpx2
import pytest
from tlog_world import KEY, turn

from builders import Wallet, deploy
from conftest import Clock
from guest_functions import SHIPPED, kept
from muniment.client import Bundle
from muniment.operate import copy_blocks, copy_database, databases
from muniment.operate.in_process import InProcess
from muniment.operate.sample_day import STAGED, add_sample_day
from muniment.operate.sample_day.records import DEVELOPER, KEYS, functions
from muniment.service.context import Context
from muniment.service.running.settings import Settings
from muniment.service.storage import registry_copy
from muniment.service.storage.database import Database
from muniment.service.storage.registry_copy import TABLES

SAMPLE: Final = Bundle.read(SHIPPED.parent)
ADDED: Final = r"Sample data of the last 24 hours: (\d+) functions, (\d+) triggers, (\d+) runs, (\d+) intents\."
NOT_ADDED: Final = "It has records already, so no sample data were added."


class Killed(BaseException):
    """In place of a signal."""


def killed_after(calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which is called so often and then kills who calls it."""
    left = iter(range(calls))

    def call(*values: Any, **named: Any) -> Any:
        if next(left, None) is None:
            raise Killed
        return function(*values, **named)

    return call


def counts(settings: Settings) -> dict[str, int]:
    """The number of rows of each table that has any."""

    async def read(database: Database) -> dict[str, int]:
        found = {each.name: (await database.fetch(f"SELECT count(*) FROM {each.name}"))[0][0] for each in TABLES}
        return {name: count for name, count in found.items() if count}

    return databases.run(settings, read)


@pytest.mark.parametrize("database_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True)
def test_a_day_that_was_interrupted_leaves_nothing_and_is_made_anew(
    settings: Settings, fresh_files: None, monkeypatch: pytest.MonkeyPatch  # noqa: ARG001 - it makes them
) -> None:  # fmt: skip
    moments: list[tuple[Any, str, int]] = [
        *((InProcess, "handle_async_request", requests) for requests in (0, 1, 30, 150)),
        (copy_blocks, "copy", 0), (copy_database, "copy", 0), (registry_copy, "counted", 0),
        (registry_copy, "require_counts", 0),  # all rows are there, but for the commit
    ]  # fmt: skip
    for place, name, calls in moments:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, killed_after(calls, getattr(place, name)))
            with pytest.raises(Killed):
                add_sample_day(settings, SAMPLE)
        assert counts(settings) == {}, (name, calls)
    (settings.data_dir / STAGED).mkdir()
    (settings.data_dir / STAGED / "muniment.db").write_bytes(b"left by a demo that was killed")
    told = re.match(ADDED, add_sample_day(settings, SAMPLE))
    assert told is not None
    made, kinds = counts(settings), ("functions", "triggers", "runs", "intents")
    assert [made[kind] for kind in kinds] == [int(each) for each in told.groups()]
    assert not (settings.data_dir / STAGED).exists()
    assert add_sample_day(settings, SAMPLE) == NOT_ADDED
    assert counts(settings) == made


async def test_a_registry_with_records_of_others_stays_as_it_is(
    client: httpx2.AsyncClient, settings: Settings, nothing_stored: Callable[[], Any]
) -> None:
    await deploy(client, wallet=Wallet(int.from_bytes(KEYS[DEVELOPER])))  # everybody has this key
    async with nothing_stored():
        assert await asyncio.to_thread(add_sample_day, settings, SAMPLE) == NOT_ADDED


async def test_a_registry_whose_transparency_log_has_begun_stays_as_it_is(
    context: Context, settings: Settings, clock: Clock, nothing_stored: Callable[[], Any]
) -> None:
    logged = replace(context.settings, tlog_name="registry.example", tlog_key=KEY)
    await turn(replace(context, settings=logged), clock)
    async with nothing_stored():
        assert await asyncio.to_thread(add_sample_day, settings, SAMPLE) == NOT_ADDED


@pytest.mark.one_engine
def test_the_functions_of_the_day_are_the_kept_samples(database_url: str) -> None:  # noqa: ARG001 - for the mark
    made = functions(SAMPLE)
    assert made["transfer"] == SAMPLE
    assert made["payroll"].wasm == SAMPLE.wasm
    assert made["swap"].wasm == kept("swap")
