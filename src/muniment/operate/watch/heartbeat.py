"""The heartbeat of a watcher: when it last read each chain, for its metrics and its readiness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.operate.watch.follower import Step
    from muniment.service.context import Context

# A step takes seconds. When a node fails, the next one is asked after a rest.
_SILENCE_S_MAX: Final = 60.0


class Heartbeat:
    """When a watcher last read each of the chains that it follows."""

    def __init__(self, context: Context, interval_s: float) -> None:
        """`interval_s` is the pause of the watcher at the head of a chain."""
        self._context = context
        self._silence_ms_max = 1_000 * max(_SILENCE_S_MAX, 3 * interval_s)
        self._read_ms: dict[int, int] = {}
        # Why the watcher does not know whether it is the one that follows the chains.
        self.fault = "the lease has not been asked for yet"

    def begin(self, chain_id: int) -> None:
        """The watcher follows this chain from now on."""
        self._read_ms[chain_id] = self._context.clock.monotonic_ms()

    def beat(self, step: Step) -> None:
        """The watcher made a step with a chain."""
        chain, clock, metrics = str(step.chain_id), self._context.clock, self._context.metrics
        self._read_ms[step.chain_id] = clock.monotonic_ms()
        metrics.gauge("watcher_behind_blocks", chain=chain).set(max(0, step.head + 1 - step.next_block))
        metrics.gauge("watcher_step_timestamp_seconds", chain=chain).set(clock.now_ms() / 1000)

    def end(self, chain_id: int) -> None:
        """Another process may follow this chain from now on."""
        self._read_ms.pop(chain_id, None)
        for name in ("watcher_behind_blocks", "watcher_step_timestamp_seconds"):
            self._context.metrics.gauge(name, chain=str(chain_id)).forget()

    @property
    def trouble(self) -> str:
        """Why the watcher is not ready; empty if each chain was read lately, or if another process follows them."""
        if self.fault:
            return self.fault
        now_ms = self._context.clock.monotonic_ms()
        silent = [chain for chain, read_ms in self._read_ms.items() if now_ms - read_ms > self._silence_ms_max]
        return f"not read for a minute or more: {', '.join(f'chain {each}' for each in silent)}" if silent else ""
