"""The doctor's check of the transparency log: each state that an operator has to look at is named."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from breaking import breaks
from muniment.operate.doctor.findings import Examined, Finding, Level
from muniment.operate.doctor.log import check_log, judge_log
from muniment.service.context import Context
from muniment.service.resources.log.store import Epoch

NOW_MS = 1_795_204_080_000
EPOCH = Epoch(
    epoch=1, origin="registry.example/log/1", vkeys="key", state="open", why=None, place="here", size=2,
    root=bytes(32), backfilled=1, note=None, note_size=0, opened_at_ms=NOW_MS - 1_000, after={}, backfill_until={},
)  # fmt: skip
STATES = {
    "halted": ({"state": "halted", "why": "it went back"}, "it is halted: it went back"),
    "frozen": ({"state": "frozen", "why": "x"}, "it is frozen"),
    "late": ({"opened_at_ms": NOW_MS - 300_001}, "has not been signed for five minutes"),
    "damaged": ({"note": "no note", "opened_at_ms": NOW_MS - 300_001}, "has not been signed for five minutes"),
}


@breaks("transparency log")
@pytest.mark.parametrize("state", STATES)
def test_a_log_that_stands_or_is_late_is_a_warning(state: str) -> None:
    changes, words = STATES[state]
    found = judge_log(msgspec.structs.replace(EPOCH, **changes), NOW_MS)
    assert found.level == Level.WARN
    assert words in found.message


def test_a_log_that_grows_is_well() -> None:
    assert judge_log(EPOCH, NOW_MS).level == Level.OK


@pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.programs)], indirect=True
)
async def test_a_registry_without_a_log_is_told_what_is_missing(context: Context) -> None:
    """On SQLite the service makes a key; on PostgreSQL the log waits for one."""

    async def found(**changes: str) -> Finding:
        return await check_log(Examined(replace(context.settings, **changes), opened=context.database))

    assert (await found(tlog_name="")).message.startswith("there is none; to begin one, set MUNIMENT_TLOG_NAME")
    begins = (Level.OK, "it begins when the service runs")
    keyless = await found(tlog_name="registry.example")
    if context.database.is_shared:
        assert (keyless.level, keyless.remedy) == (Level.WARN, "set MUNIMENT_TLOG_KEY for the service")
    else:
        assert (keyless.level, keyless.message) == begins
    keyed = await found(tlog_name="registry.example", tlog_key="11" * 32)
    assert (keyed.level, keyed.message) == begins
