"""What is left to publish: a run that cannot be published holds up no other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import time_payload
from muniment.protocol.runs.texts import Engine
from muniment.relayer.due import Due
from muniment.relayer.figures import Figures
from muniment.relayer.journal import Entry, Journal, State
from muniment.relayer.loop import Relayer
from muniment.relayer.publication import Published
from muniment.relayer.settings import RelayerSettings, Served

SETTINGS = RelayerSettings(registry="http://registry.test", served=Served(None, None, None))
# More than are published at once.
COUNT = 20


class _Publishing:
    """Publishes nothing; the first run has a fault that nobody foresaw."""

    async def publish(self, entry: Entry) -> Published:
        if entry.timestamp_ms == 0:
            raise ValueError("unforeseen")
        return Published(None)


async def test_a_run_that_cannot_be_published_holds_up_no_other() -> None:
    sig = Signature.parse("0x" + "11" * 64 + "1b")
    with Journal.in_memory() as journal:
        for tick_ms in range(COUNT):
            due = Due(sig, 0, time_payload(tick_ms), tick_ms, tick_ms)
            journal.plan([due], 0)
            journal.ran(due, "nothing", b"{}", bytes(32), 0)
        relayer = Relayer(
            settings=SETTINGS, journal=journal, following=cast("Any", SimpleNamespace(tracked={})),
            running=cast("Any", None), publishing=_Publishing(), clock=cast("Any", SimpleNamespace(own_ms=lambda: 0)),
            caps=cast("Any", SimpleNamespace()), figures=Figures(), engine=Engine("tests"),
            events=cast("Any", SimpleNamespace(chains={})), funds=cast("Any", None),
            ask_time=cast("Any", None), steady_s=lambda: 0.0, places=1,
        )  # fmt: skip
        assert not await relayer._publish_left()
        assert [each.timestamp_ms for each in journal.unfinished(State.RAN)] == [0]
        assert 'failures_total{kind="internal"} 1' in relayer.figures.text()
