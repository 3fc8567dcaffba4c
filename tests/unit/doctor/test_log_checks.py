"""The doctor's check of the transparency log: each state that an operator has to look at is named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from breaking import breaks
from muniment.operate.doctor.findings import Examined, Level
from muniment.operate.doctor.log import check_log, judge_log
from muniment.service.resources.log.store import Epoch
from muniment.service.running.settings import Settings
from muniment.service.storage import open_database

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


async def test_a_registry_without_a_log_is_told_how_to_begin_one(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, tlog_name="")
    database = open_database(settings.database_url, data_dir=tmp_path)
    await database.migrate()
    assert (await check_log(Examined(settings, opened=database))).message.startswith("there is none; to begin one, set")
    await database.close()
