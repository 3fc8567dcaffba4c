"""Feed a flow by hand: answers, errors and signatures, without a network, a clock or chance."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from builders import Wallet
from muniment.client import Reply, Retry, Unreachable
from muniment.client.flows.session import Session
from muniment.client.steps import Flow, Send, SignText, SignTyped, Sleep
from muniment.protocol.evm.address import Address

T = TypeVar("T")
ME = Wallet(7)
LOST = Unreachable("the answer is lost", sent=True)
UNSENT = Unreachable("connection refused", sent=False)
Outcome = Reply | Exception | Callable[[Send], Reply | Exception]


@dataclass
class Fed:
    """A clock that only pauses move, a chance that is always the same, and what the flow did."""

    now_s: float = 1_800_000_000.0
    chance: float = 0.0
    sent: list[Send] = field(default_factory=list[Send])
    slept: list[float] = field(default_factory=list[float])
    signed: list[Any] = field(default_factory=list[Any])
    # Seconds that pass with each request.
    request_s: float = 0.0

    @property
    def retry(self) -> Retry:
        return Retry(seconds=lambda: self.now_s, now=lambda: self.now_s, chance=lambda: self.chance)

    def session(self, **members: Any) -> Session:
        given: dict[str, Any] = {"url": "http://127.0.0.1:8787", **members}
        return Session(retry=self.retry, address=Address.parse(ME.address), operator_key="mno_key", **given)

    def run(self, flow: Flow[T], outcomes: Sequence[Outcome]) -> T:
        """The result of `flow`, whose requests have these outcomes, one after the other."""
        left = list(outcomes)
        step = next(flow)
        while True:
            try:
                outcome = self._outcome(step, left)
                step = flow.throw(outcome) if isinstance(outcome, Exception) else flow.send(outcome)
            except StopIteration as end:
                assert not left, f"the flow ended without {left}"
                return end.value

    def _outcome(self, step: object, left: list[Outcome]) -> Any:
        match step:
            case Send():
                self.sent.append(step)
                self.now_s += self.request_s
                assert left, f"unexpected {step}"
                outcome = left.pop(0)
                return outcome(step) if callable(outcome) else outcome
            case Sleep(seconds=seconds):
                self.slept.append(seconds)
                self.now_s += seconds
                return None
            case SignText(text=text):
                self.signed.append(text)
                return ME.sign_text(text)
            case SignTyped(data=data):
                self.signed.append(data)
                return ME.sign_typed_data(dict(data))
            case _:
                raise AssertionError(step)


def answer(content: Any, status: int = 200, **headers: str) -> Reply:
    """An answer; names of header fields with `_` for `-`."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, fields, content if isinstance(content, bytes) else json.dumps(content).encode())


def refused(status: int, code: str = "", **headers: str) -> Reply:
    """A problem document, or a page of HTML where there is no code."""
    page = b"<html><h1>Bad gateway</h1></html>"
    document = {"code": code, "detail": "no", "status": status, "errors": []}
    return answer(document if code else page, status, **headers)
