"""The work of a relayer: find what is due, run it, publish it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from muniment.chains.gas import measure_gas
from muniment.relayer.events.lanes import QUIET, show_places
from muniment.relayer.journal.entries import State
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.ledger import Ledger
from muniment.relayer.lives.following import FAILURES
from muniment.relayer.outbox.outbox import PASSING, Outbox, Publishing
from muniment.relayer.planner import Planner
from muniment.relayer.runner.results import LATE, Made, NotYet
from muniment.relayer.runner.runner import Runner
from muniment.relayer.schedule.agenda import RETRY_MS, Agenda
from muniment.relayer.schedule.turns import Turns

if TYPE_CHECKING:
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.runs.texts import Engine
    from muniment.relayer.clock import RegistryClock
    from muniment.relayer.events.runs import EventRuns
    from muniment.relayer.figures import Figures
    from muniment.relayer.lives.following import Following
    from muniment.relayer.runner.caps import Caps
    from muniment.relayer.runner.funds import Funds
    from muniment.relayer.runner.results import Running
    from muniment.relayer.schedule.turns import Turn
    from muniment.relayer.settings import RelayerSettings

# The longest sleep between two looks, so that a step of the clock is noticed.
_LOOK_S: Final = 1.0
# A provider may change what it gives.
_GAS_MEASURED_S: Final = 86_400.0
# Seconds between two looks at the head of a chain, as the watcher has it.
_EVENTS_S: Final = 4.0
# After so many seconds in which the events of a chain could not be read up to its head, this relayer is not ready.
_STILL_S_MAX: Final = 120.0

Reading = Callable[[int, int], Awaitable[bool]]

_log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Relayer:
    """Runs the triggers that are due until it is cancelled, or once. `places` is how many runs there are at once.

    `ask_time` makes a request to the registry, whose answer tells the time. `steady_s` is a monotonic clock.
    """

    settings: RelayerSettings
    journal: Journal
    following: Following
    running: Running
    publishing: InitVar[Publishing]
    clock: RegistryClock
    caps: Caps
    figures: Figures
    engine: Engine
    events: EventRuns
    funds: Funds
    ask_time: Callable[[], Awaitable[object]]
    steady_s: Callable[[], float]
    places: int
    # Why this relayer cannot work now, by what is in its way.
    troubles: dict[str, str] = field(
        default_factory=lambda: {"registry": "the triggers have not been read yet"}, init=False
    )
    outbox: Outbox = field(init=False)
    ledger: Ledger = field(init=False)
    planner: Planner = field(init=False)
    agenda: Agenda = field(init=False)
    runner: Runner = field(init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"], init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # Whether the triggers were read once. Until then every trigger looks as if it had ended.
    _read: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self, publishing: Publishing) -> None:
        """Take part in the following of triggers."""
        self.outbox = Outbox(
            journal=self.journal, publishing=publishing, clock=self.clock, caps=self.caps, figures=self.figures
        )  # fmt: skip
        self.agenda = Agenda(turns=Turns(places=self.places, is_open=self.settings.served.signers is None))
        self.ledger = Ledger(journal=self.journal, caps=self.caps, figures=self.figures, engine=self.engine)
        self.planner = Planner(
            journal=self.journal, following=self.following, agenda=self.agenda, ledger=self.ledger,
            figures=self.figures, steady_s=self.steady_s,
        )  # fmt: skip
        self.runner = Runner(
            settings=self.settings, following=self.following, running=self.running, caps=self.caps,
            events=self.events.forks, now_ms=self.clock.now_ms,
        )  # fmt: skip
        self.following.on_change = self._see
        self.events.planner.telling = self.ledger

    async def serve(self) -> None:
        """Follow, run and publish until it is cancelled; runs that go on are cancelled too, and made again later."""
        await self._measure_gas()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._look_always())
                group.create_task(self._publish())
                group.create_task(self.following.ends.read_always())
                group.create_task(self._measure_gas_always())
                for chain_id in self.events.chains:
                    group.create_task(self._read_events(chain_id, self.events.step))
                    group.create_task(self._read_events(chain_id, self.events.step_others))
        finally:
            await self._cancel_runs()

    async def once(self) -> bool:
        """One step: publish what was left, run what is due, publish it. Whether nothing is left.

        Cancelled, it cancels runs that go on, which are made again later. Raises the errors of the client while it
        reads the triggers.
        """
        try:
            return await self._once()
        finally:
            await self._cancel_runs()

    async def _cancel_runs(self) -> None:
        """Before the journal and the clients are closed, which they use."""
        await self.events.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _once(self) -> bool:
        await self._measure_gas()
        await self._begin()
        await self.outbox.publish_left()
        if await self._time() is None:
            return False
        read = [
            await self._read_to_head(chain_id, step)
            for chain_id in self.events.chains
            for step in (self.events.step, self.events.step_others)
        ]
        await self.events.close()
        done, last_ms = all(read), 0
        while (now_ms := await self._time()) is not None:
            last_ms = last_ms or now_ms
            done &= self.planner.look(now_ms, last_ms)
            if not self.agenda.turns.count:
                break
            self._start_runs()
            if not self._tasks:  # every signer with a run rests
                await self._sleep()
                continue
            wait_s = self.agenda.turns.seconds_to_wait(self.steady_s())
            await asyncio.wait(self._tasks, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        done &= now_ms is not None
        await self.outbox.publish_left()
        if self._tasks:  # those that tell of funds
            await asyncio.wait(self._tasks)
        return done and not (self.journal.count(State.RAN) or self.journal.planned_triggers())

    async def _measure_gas(self) -> None:
        """Learn which nodes give a call less gas than it asks for: there, running out of gas is no answer."""
        await asyncio.gather(*map(measure_gas, self.events.pins.nodes.values()))

    async def _measure_gas_always(self) -> None:
        while True:
            await asyncio.sleep(_GAS_MEASURED_S)
            try:
                await self._measure_gas()
            except Exception as error:  # noqa: BLE001 - it may pass
                self.figures.fail("internal", "cannot measure the gas of nodes", error)

    async def _begin(self) -> str:
        """Read the triggers; planned runs of those that have ended meanwhile are given up."""
        cursor = await self.following.begin()
        for sig in self.journal.planned_triggers():
            if sig not in self.following.tracked:
                self.journal.give_up_all(sig)
        self._read.set()
        return cursor

    async def _publish(self) -> None:
        await self._read.wait()
        await self.outbox.serve()

    async def _follow(self) -> None:
        while True:
            try:
                cursor = await self._begin()
                self.troubles.pop("registry", None)
                _log.info("following", triggers=len(self.following.tracked), registry=self.settings.registry)
                await self.following.follow(cursor)
            except FAILURES as error:
                self.figures.fail("registry", "cannot follow the triggers", error)
                self.troubles["registry"] = f"cannot follow the triggers: {error}"
            except Exception as error:  # noqa: BLE001 - an error in one page must not end the others' runs
                self.figures.fail("internal", "cannot follow the triggers", error)
            await asyncio.sleep(RETRY_MS / 1_000)

    async def _read_to_head(self, chain_id: int, step: Reading) -> bool:
        """Read the events of a chain up to its head; whether that went well."""
        try:
            while (now_ms := self.clock.now_ms()) is not None:
                if await step(chain_id, now_ms):
                    return True
        except PASSING as error:
            self.figures.fail("incomplete", "the events of a chain cannot be read now", error, chain=chain_id)
        return False

    async def _read_events(self, chain_id: int, step: Reading) -> None:
        while True:
            try:
                await self._read_to_head(chain_id, step)
            except Exception as error:  # noqa: BLE001 - it may pass
                self.figures.fail("internal", "the events of a chain cannot be read", error, chain=chain_id)
            self.planner.see_events()
            self._changed.set()
            await asyncio.sleep(_EVENTS_S)

    async def _look_always(self) -> None:
        await self._read.wait()
        while True:
            try:
                now_ms = await self._time()
                if now_ms is not None:
                    self.planner.look(now_ms)
                    self._start_runs()
            except Exception as error:  # noqa: BLE001 - it may pass
                self.figures.fail("internal", "cannot look for runs", error)
            await self._sleep()

    async def _sleep(self) -> None:
        """Until something changed, a signer has rested, or the clock may have stepped."""
        self._changed.clear()
        rest_s = self.agenda.turns.seconds_to_wait(self.steady_s())
        try:
            async with asyncio.timeout(min(_LOOK_S, _LOOK_S if rest_s is None else rest_s)):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _time(self) -> int | None:
        """The time by which runs are due; None, and an alarm, while this machine and the registry disagree."""
        now_ms = self.clock.now_ms()
        if now_ms is None or not self.clock.is_fresh():
            try:
                await self.ask_time()
            except FAILURES as error:
                self.figures.fail("registry", "the registry does not tell the time", error)
            now_ms = self.clock.now_ms() if self.clock.is_fresh() else None
        self.figures.show("clocks_agree", float(now_ms is not None))
        if now_ms is None:
            self.troubles["clock"] = "this machine and the registry do not agree on the time: nothing runs"
            _log.error("nothing runs: the clocks are more than five minutes apart, or the registry is silent")
        else:
            self.troubles.pop("clock", None)
        return now_ms

    def trouble(self) -> str:
        """Why this relayer cannot do all its work now, also of chains that do not move; empty if it can."""
        lines = [
            f"chain {each.chain_id} does not move: its events were read {each.seconds_behind[QUIET]:.0f} seconds ago"
            for each in self.events.places()
            if each.seconds_behind[QUIET] > _STILL_S_MAX
        ]
        return "; ".join([*self.troubles.values(), *lines])

    def metrics(self) -> str:
        """All metrics, in the text format of Prometheus."""
        show_places(self.figures, self.events.places())
        return self.figures.text()

    def _see(self, sig: Signature) -> None:
        self.planner.see(sig)
        self.events.see(sig)
        self._changed.set()

    def _start_runs(self) -> None:
        while (turn := self.agenda.turns.take(self.steady_s())) is not None:
            self._begin_task(self._run(turn))

    def _begin_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, turn: Turn) -> None:
        """Make a run, keep what became of it and publish that, then look at its trigger again."""
        due = turn.due
        began_s, code = self.steady_s(), LATE  # also for one that is cancelled
        try:
            outcome = await self.runner.attempt(due)
            if self.clock.now_ms() is None:  # such as after a suspension of this machine
                await self._time()
            code = outcome.code if isinstance(outcome, NotYet) else ""
            if (entry := self.ledger.keep(due, outcome, self.clock.likely_ms())) is not None:
                await self.outbox.publish(entry)
            if isinstance(outcome, Made) and outcome.intents:
                self._begin_task(self._tell_of_funds(outcome))
        except PASSING as error:
            code = "no-answer"
            self.figures.fail("registry", "a run has to wait", error, trigger=due.sig)
        except Exception as error:  # noqa: BLE001 - a run must not end the others
            code = "no-answer"
            self.figures.fail("internal", "a run has failed", error, trigger=due.sig)
        finally:
            now_s = self.steady_s()
            self.agenda.ended(turn, now_s - began_s, now_s)
            self.planner.look_again(due, code, self.clock.likely_ms())
            self._changed.set()

    async def _tell_of_funds(self, made: Made) -> None:
        """Beside the turns: neither publication nor another run waits for it."""
        try:
            await self.funds.tell(made.run, made.intents)
        except Exception as error:  # noqa: BLE001 - it only tells
            self.figures.fail("internal", "cannot tell whether wallets have enough", error)
