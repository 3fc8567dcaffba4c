"""The work of a relayer: find what is due, run it, publish it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.journal.sqlite import Journal, State
from muniment.relayer.lives.following import FAILURES
from muniment.relayer.outbox.outbox import PASSING, RETRY_MS, Outbox, Publishing
from muniment.relayer.outbox.publication import Content
from muniment.relayer.runner.notes import missed, skipped
from muniment.relayer.runner.results import Made, NotYet, Running
from muniment.relayer.schedule.due import Due, Gap, Plan
from muniment.relayer.schedule.turns import Turns
from muniment.relayer.schedule.wakes import Wakes

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.runs.reasons import RunReasonCode
    from muniment.protocol.runs.texts import Engine
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.clock import RegistryClock
    from muniment.relayer.events.runs import EventRuns
    from muniment.relayer.figures import Figures
    from muniment.relayer.lives.following import Following
    from muniment.relayer.runner.caps import Caps
    from muniment.relayer.runner.funds import Funds
    from muniment.relayer.settings import RelayerSettings

# After so many failures in sequence a trigger rests: a minute, then twice as long each time, at most an hour.
FAILURES_MAX: Final = 3
_REST_MS: Final = 60_000
_REST_MS_MAX: Final = 3_600_000
# A note says once an hour that the runs of a trigger are skipped.
_TOLD_MS: Final = 3_600_000
# The longest sleep between two looks, so that a step of the clock is noticed.
_LOOK_S: Final = 1.0
# Seconds between two looks at the head of a chain, as the watcher has it.
_EVENTS_S: Final = 4.0
# Runs of events that wait at once; the others are in the journal.
_EVENTS_AT_ONCE: Final = 500

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
    trouble: str = field(default="the triggers have not been read yet", init=False)
    outbox: Outbox = field(init=False)
    _turns: Turns = field(init=False)
    _wakes: Wakes = field(default_factory=Wakes, init=False)
    # Triggers with a run that waits or runs: each is looked at again when it ends.
    _busy: set[Signature] = field(default_factory=set["Signature"], init=False)
    # Runs of events that wait or run.
    _busy_events: set[tuple[Signature, bytes]] = field(default_factory=set[tuple["Signature", bytes]], init=False)
    # When planned runs of events are taken up next, by the monotonic clock.
    _events_s: float = field(default=0.0, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"], init=False)
    # When it was last noted of a trigger that its runs are skipped, in milliseconds since 1970.
    _told: dict[Signature, int] = field(default_factory=dict["Signature", int], init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # Whether the triggers were read once. Until then every trigger looks as if it had ended.
    _read: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self, publishing: Publishing) -> None:
        """Take part in the following of triggers."""
        self.outbox = Outbox(
            journal=self.journal, publishing=publishing, clock=self.clock, caps=self.caps, figures=self.figures
        )  # fmt: skip
        self._turns = Turns(places=self.places, is_open=self.settings.served.signers is None)
        self.following.on_change = self._see
        self.events.miss = self._note

    async def serve(self) -> None:
        """Follow, run and publish, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._look_always())
            group.create_task(self._publish())
            group.create_task(self.following.ends.read_always())
            for chain_id in self.events.chains:
                group.create_task(self._read_events(chain_id))

    async def once(self) -> bool:
        """One step: publish what was left, run what is due, publish it. Whether nothing is left.

        Raises the errors of the client while it reads the triggers.
        """
        await self._begin()
        await self.outbox.publish_left()
        now_ms = await self._time()
        if now_ms is None:
            return False
        read = [await self._read_to_head(chain_id, now_ms) for chain_id in self.events.chains]
        self._look(now_ms)
        while self._turns.count:
            self._start_runs()
            if not self._tasks:  # every signer with a run rests
                await self._sleep()
                continue
            wait_s = self._turns.seconds_to_wait(self.steady_s())
            await asyncio.wait(self._tasks, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        await self.outbox.publish_left()
        if self._tasks:  # those that tell of funds
            await asyncio.wait(self._tasks)
        return all(read) and not (self.journal.unfinished(State.RAN) or self.journal.unfinished(State.PLANNED))

    async def _begin(self) -> str:
        """Read the triggers; planned runs of those that have ended meanwhile are given up."""
        cursor = await self.following.begin()
        for entry in self.journal.unfinished(State.PLANNED):
            if entry.sig not in self.following.tracked:
                self.journal.give_up(entry.due, is_decided=False)
        self._read.set()
        return cursor

    async def _publish(self) -> None:
        await self._read.wait()
        await self.outbox.serve()

    async def _follow(self) -> None:
        while True:
            try:
                cursor = await self._begin()
                self.trouble = ""
                _log.info("following", triggers=len(self.following.tracked), registry=self.settings.registry)
                await self.following.follow(cursor)
            except FAILURES as error:
                self.figures.fail("registry", "cannot follow the triggers", error)
                self.trouble = f"cannot follow the triggers: {error}"
            except Exception as error:  # noqa: BLE001 - an error in one page must not end the others' runs
                self.figures.fail("internal", "cannot follow the triggers", error)
            await asyncio.sleep(RETRY_MS / 1_000)

    async def _read_to_head(self, chain_id: int, now_ms: int) -> bool:
        """Read the events of a chain up to its head; whether that went well."""
        try:
            while not await self.events.step(chain_id, now_ms):
                pass
        except PASSING as error:
            self.figures.fail("incomplete", "the events of a chain cannot be read now", error, chain=chain_id)
            return False
        return True

    async def _read_events(self, chain_id: int) -> None:
        while True:
            try:
                now_ms = self.clock.now_ms()
                if now_ms is not None:
                    await self._read_to_head(chain_id, now_ms)
            except Exception as error:  # noqa: BLE001 - it may pass
                self.figures.fail("internal", "the events of a chain cannot be read", error, chain=chain_id)
            self._events_s = 0.0
            self._changed.set()
            await asyncio.sleep(_EVENTS_S)

    async def _look_always(self) -> None:
        while True:
            try:
                now_ms = await self._time()
                if now_ms is not None:
                    self._look(now_ms)
                    self._start_runs()
            except Exception as error:  # noqa: BLE001 - it may pass
                self.figures.fail("internal", "cannot look for runs", error)
            await self._sleep()

    async def _sleep(self) -> None:
        """Until something changed, a signer has rested, or the clock may have stepped."""
        self._changed.clear()
        rest_s = self._turns.seconds_to_wait(self.steady_s())
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
            self.trouble = "this machine and the registry do not agree on the time: nothing runs"
            _log.error("nothing runs: the clocks are more than five minutes apart, or the registry is silent")
        elif self.trouble.startswith("this machine"):
            self.trouble = ""
        return now_ms

    def _see(self, sig: Signature) -> None:
        """A trigger appeared, ended or returned."""
        if sig in self.following.tracked:
            self._wakes.at(sig, 0)
        else:
            self._wakes.forget(sig)
        self.figures.show("triggers", len(self.following.tracked))
        self._changed.set()

    def _look(self, now_ms: int) -> None:
        """Plan the runs that are due, and let them wait for their turns."""
        if self._wakes.is_back(now_ms):
            for sig in self.following.tracked:
                self._wakes.at(sig, 0)
        dues: list[Due] = []
        error: Exception | None = None
        for sig in self._wakes.due(now_ms):
            try:
                if (due := self._look_at(sig, now_ms)) is not None:
                    dues.append(due)
            except Exception as caught:  # noqa: BLE001 - raised below; it must not keep the others from their runs
                error = caught
                self._wakes.at(sig, now_ms + RETRY_MS)
        if dues:
            self._plan(dues, now_ms)
        for due in dues:
            self._busy.add(due.sig)
            self._turns.put(self.following.tracked[due.sig].trigger.signer, due)
        self._take_events(now_ms)
        self.figures.show("runs_waiting", self._turns.count)
        if error is not None:
            raise error

    def _plan(self, dues: Sequence[Due], now_ms: int) -> None:
        try:
            self.journal.plan(dues, now_ms)
        except Exception:  # such as a full disk
            for due in dues:
                self._wakes.at(due.sig, now_ms + RETRY_MS)
            raise

    def _take_events(self, now_ms: int) -> None:
        """Let planned runs of events wait for their turns; those whose time is over are missed."""
        if self.steady_s() < self._events_s:
            return
        self._events_s = self.steady_s() + RETRY_MS / 1_000
        for entry in self.journal.planned_events(_EVENTS_AT_ONCE):
            key, tracked = (entry.sig, entry.payload), self.following.tracked.get(entry.sig)
            known = self.journal.known(entry.sig)
            rests = known is not None and now_ms < known.rests_until_ms <= min(entry.until_ms, now_ms + _REST_MS_MAX)
            if key in self._busy_events or rests:
                continue
            if tracked is None:
                self.journal.give_up(entry.due, is_decided=False)
            elif now_ms > entry.until_ms:
                gap = Gap(entry.sig, entry.kind, entry.payload, 1, entry.timestamp_ms, entry.timestamp_ms)
                self._note(gap, tracked.plan.delta_ms, now_ms)
            else:
                self._busy_events.add(key)
                self._turns.put(tracked.trigger.signer, entry.due)

    def _look_at(self, sig: Signature, now_ms: int) -> Due | None:
        tracked, known = self.following.tracked.get(sig), self.journal.known(sig)
        if tracked is None or known is None or known.ended_ms is not None or sig in self._busy:
            return None
        rests_ms = min(known.rests_until_ms, now_ms + _REST_MS_MAX)  # the clock may have gone back
        if rests_ms > now_ms:
            self._wakes.at(sig, rests_ms)
            return None
        look = tracked.plan.look(known.seen, now_ms)
        if look.gap is not None:
            self._note(look.gap, tracked.plan.delta_ms, now_ms)
        if look.due is None and look.wake_ms is not None:
            self._wakes.at(sig, look.wake_ms)
        return look.due

    def _note(self, gap: Gap, delta_ms: int, now_ms: int) -> None:
        """Put the note of a gap into the journal; it is published with what is left."""
        entry = self.journal.entry(gap.sig, gap.kind, gap.payload)
        if entry is not None and entry.state is not State.PLANNED:
            return
        code: RunReasonCode = "overtaken" if now_ms <= gap.to_ms + delta_ms else "gap"
        if entry is not None:
            code = "unanswered"
        content = Content.of(missed(gap, code, self.engine), [])
        self.journal.note(gap, *content.bytes_and_hash(), now_ms)
        self.figures.add("runs_total", "missed")
        _log.warning("missed", trigger=gap.sig, ticks=gap.ticks, from_ms=gap.from_ms, to_ms=gap.to_ms, reason=code)
        if code == "unanswered":
            self._judge(gap.sig, now_ms, is_failure=True)

    def _start_runs(self) -> None:
        while (turn := self._turns.take(self.steady_s())) is not None:
            self._begin_task(self._run(*turn))

    def _begin_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, signer: Address, due: Due) -> None:
        """A turn: attempt a run, then look at its trigger again: at once, or after a pause if it has no result."""
        began_s, is_decided = self.steady_s(), False
        try:
            is_decided = await self._attempt(due)
        except PASSING as error:
            self.figures.fail("registry", "a run has to wait", error, trigger=due.sig)
        except Exception as error:  # noqa: BLE001 - a run must not end the others
            self.figures.fail("internal", "a run has failed", error, trigger=due.sig)
        finally:
            now_s = self.steady_s()
            self._turns.ended(signer, now_s - began_s, now_s)
            if due.kind == EVENT:
                self._busy_events.discard((due.sig, due.payload))
            else:
                self._busy.discard(due.sig)
            if due.sig in self.following.tracked and due.kind != EVENT:
                self._wakes.at(due.sig, 0 if is_decided else self._wakes.latest_ms + RETRY_MS)
            self._changed.set()

    async def _attempt(self, due: Due) -> bool:
        """Run what is due and publish it; whether it has a result. Raises the errors of the client."""
        trigger = await self.following.asked_again(due.sig)
        if trigger is None:
            self.journal.give_up(due, is_decided=False)
            return False
        now_ms = self.clock.now_ms()
        if now_ms is None or now_ms > due.until_ms:
            return False
        if due.kind == EVENT and not await self.events.may_run(due):
            self.journal.give_up(due, is_decided=False)
            _log.warning("a run is cancelled: the block of its event is gone", trigger=due.sig)
            return True
        if code := await self._skipped(trigger, due, now_ms):
            await self._skip(due, code, now_ms)
            return True
        made = await self.running.run(trigger, due)
        if isinstance(made, NotYet):
            self.figures.add("failures_total", "incomplete")
            _log.info("no result yet", trigger=due.sig, time_ms=due.timestamp_ms, code=made.code, reason=made.text)
            return False
        self.caps.count(made.run, now_ms)
        await self._keep(due, Content.of(made.run, made.intents), now_ms)
        if made.intents:
            self._begin_task(self._tell_of_funds(made))
        self._judge(due.sig, now_ms, is_failure=made.run.result == "stopped")
        return True

    async def _tell_of_funds(self, made: Made) -> None:
        """Beside the turns: neither publication nor another run waits for it."""
        try:
            await self.funds.tell(made.run, made.intents)
        except Exception as error:  # noqa: BLE001 - it only tells
            self.figures.fail("internal", "cannot tell whether wallets have enough", error)

    async def _skipped(self, trigger: Trigger, due: Due, now_ms: int) -> RunReasonCode | None:
        """Why this relayer does not make a run of this trigger; None if it does."""
        limit = int(trigger.execution_fee_limit)
        if limit and self.settings.fee_of(trigger) > limit:
            return "fee-limit"
        if due.kind == EVENT and await self.events.was_submitted(due):
            return "other-block"
        return await self.caps.reached(Plan.of(trigger), now_ms)

    async def _skip(self, due: Due, code: RunReasonCode, now_ms: int) -> None:
        """Note a run that is skipped; for reasons that stay, once an hour."""
        if code != "other-block" and now_ms - self._told.get(due.sig, 0) < _TOLD_MS:
            self.journal.give_up(due, is_decided=True)
            return
        if code != "other-block":
            self._told[due.sig] = now_ms
        _log.warning("runs are skipped", trigger=due.sig, reason=code)
        await self._keep(due, Content.of(skipped(due, code, self.engine), []), now_ms)

    async def _keep(self, due: Due, content: Content, now_ms: int) -> None:
        """Put a result into the journal, and then publish it."""
        body, hash_ = content.bytes_and_hash()
        self.journal.ran(due, content.run.result, body, hash_, now_ms)
        self.figures.add("runs_total", content.run.result)
        entry = self.journal.entry(due.sig, due.kind, due.payload)
        if entry is not None:
            await self.outbox.publish(entry)

    def _judge(self, sig: Signature, now_ms: int, *, is_failure: bool) -> None:
        """Count failures in sequence: from the third on the trigger rests."""
        known = self.journal.known(sig)
        if known is None or not (is_failure or known.failures):
            return
        failures = known.failures + 1 if is_failure else 0
        rest_ms = min(_REST_MS_MAX, _REST_MS << min(failures - FAILURES_MAX, 10)) if failures >= FAILURES_MAX else 0
        self.journal.failed(sig, failures, now_ms + rest_ms if rest_ms else 0)
        if rest_ms:
            _log.warning("the trigger rests after failures", trigger=sig, failures=failures, seconds=rest_ms // 1_000)
