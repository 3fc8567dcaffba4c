"""Ethereum JSON-RPC over HTTP, in batches. Nodes may answer in any order; every part of an answer is checked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, cast

from muniment.chains.sentences import sentence_of
from muniment.chains.verdicts import Fault, fault_of, is_of_answer, is_of_batch
from muniment.outgoing import SMALL_ANSWER_BYTES_MAX, Answer, Outgoing, Unreachable
from muniment.protocol.json_text import parse_json
from muniment.protocol.wire import encode

# Calls in one request. A block comes with the hashes of its transactions, some 100 KB; answers are read up to 8 MiB.
CALLS_MAX: Final = 50
# After so many full requests a node is asked for twice as much; for as much as it refused, after more of them, because
# its limit may have changed.
_FITTED_FEW: Final = 20
_FITTED_MAX: Final = 100
# The rest after an answer that the quota is used up, unless the node names another: this, doubled up to the longest.
_LIMITED_SECONDS_FIRST: Final = 1.0
LIMITED_SECONDS_MAX: Final = 300.0
# Once a quota was met, calls are spread: the pause between two of them, longer each time, and shorter with each answer.
_SPREAD_S_FIRST: Final = 0.02
_SPREAD_S_MAX: Final = 1.0
_SPREAD_GROWTH: Final = 1.5
_SPREAD_DECAY: Final = 0.995
_SPREAD_S_MIN: Final = 0.002
# No turn is later: of more calls than a quota takes, some meet it.
TURN_S_MAX: Final = 2.0
# JSON-RPC 2.0: "Invalid Request" and "Invalid params", which nodes answer to a batch that they do not take; the second
# may be meant where the batch has one call.
_INVALID_REQUEST, _INVALID_PARAMS = -32600, -32602
# Statuses of servers before a node; others may have an answer of the node.
_OF_SERVERS: Final = frozenset({401, 402, 403, 404, 405, 407, 408, 502, 503, 504})
# What is read of an answer that is not JSON.
_TEXT_BYTES_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class Call:
    """One JSON-RPC request."""

    method: str
    params: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The error that a node sent instead of a result: its `message` is cleaned, `fault` says whose failure it is."""

    code: int
    message: str
    fault: Fault = "node"
    is_of_batch: bool = False
    is_of_answer: bool = False


def eth_call(data: bytes, *, to: str | None = None, block: str = "latest", gas: int | None = None) -> Call:
    """An `eth_call` with `data` to a contract; without `to`, `data` is creation code, which the node runs once."""
    transaction: dict[str, str] = {"data": "0x" + data.hex()}
    if to is not None:
        transaction["to"] = to
    if gas is not None:
        transaction["gas"] = hex(gas)
    return Call("eth_call", (transaction, block))


def check_given(answer: object) -> None:
    """Raises `Unreachable`, with the node's own sentence, for an error in place of a result."""
    if isinstance(answer, Failed):
        raise Unreachable("refused", answer.message)


@dataclass(slots=True, eq=False)
class Endpoint:
    """The URL of a node, and what was learned about the requests that it takes."""

    url: str = field(repr=False)
    # Calls in one request; 0: a single call outside of a list, for nodes that take no batch at all.
    calls_max: int = CALLS_MAX
    rests_until_s: float = 0
    _refused: int = CALLS_MAX + 1
    _fitted: int = 0
    _limited: int = 0
    _spread_s: float = 0
    _next_s: float = 0
    _said: str = ""

    async def ask(
        self,
        outgoing: Outgoing,
        calls: Sequence[Call],
        *,
        now_s: Callable[[], float],
        seconds_max: float,
        bytes_max: int = SMALL_ANSWER_BYTES_MAX,
        patience_s: float = 0,
        chain_id: int,
    ) -> list[Any]:
        """The results of `calls` in their order, each a JSON value or `Failed`, in as many requests as needed.

        `now_s` is a clock that only goes forward. A request that the node refuses as a batch is divided. Raises
        `Unreachable`: `garbage` if the answer does not match the calls, `too-large` beyond `bytes_max` for a request,
        `limited` when the node's quota is used up; then nothing is sent until its rest is over. That is waited for as
        long as the rests between two answers are at most `patience_s` together: what needs more calls than a quota
        has at once would never be done otherwise. Whoever has patience also waits for the turn of its calls.
        """
        answers, waited_s = list[Any](), 0.0
        while len(answers) < len(calls):
            if (rest_s := self.rests_until_s - now_s()) > 0:
                waited_s += rest_s
                if waited_s > patience_s:
                    raise Unreachable("limited", self._said, rest_s)
                await asyncio.sleep(rest_s)
                continue
            count = min(max(1, self.calls_max), len(calls) - len(answers))
            await self._wait_for_turn(count, now_s(), patience_s)
            if self.rests_until_s > now_s():
                continue
            # Other calls may have learned meanwhile that the node takes fewer.
            piece = calls[len(answers) : len(answers) + min(count, max(1, self.calls_max))]
            begun = time.perf_counter()
            try:
                results = await self._request(outgoing, piece, seconds_max, bytes_max)
            except Unreachable as error:
                outgoing.node_metrics.node_failed(chain_id)
                if error.reason == "limited":
                    self._rest(error, now_s())
                if error.reason != "limited" or not patience_s:
                    raise
                continue
            finally:
                outgoing.node_metrics.node_asked(chain_id, time.perf_counter() - begun)
            if results is None:
                self._divide(len(piece))
            else:
                answers += results
                self._limited, waited_s = 0, 0.0
                self._spread_s *= _SPREAD_DECAY ** len(piece)
                self._fit(len(piece))
        return answers

    def waits(self, now_s: float, seconds: float) -> bool:
        """Whether the node rests for a quota, or the turn of a call is more than so many seconds ahead."""
        return self.rests_until_s > now_s or self._next_s > now_s + seconds

    async def _request(
        self, outgoing: Outgoing, calls: Sequence[Call], seconds_max: float, bytes_max: int
    ) -> list[Any] | None:
        """The results of one request; None: the node refuses so many calls in one. Raises `Unreachable`."""
        batch = [
            {"jsonrpc": "2.0", "id": number, "method": call.method, "params": call.params}
            for number, call in enumerate(calls)
        ]
        is_list = self.calls_max > 0
        body = encode(batch if is_list else batch[0])
        fields = [("content-type", "application/json"), ("content-length", str(len(body)))]
        answer = await outgoing.send(self.url, fields, body, seconds_max=seconds_max, bytes_max=bytes_max)
        results = await _results(answer, self.url, len(calls))
        # Errors that refuse the batch, or all of them for the time being.
        if not isinstance(results, Failed):
            refusal = next((each for each in results if isinstance(each, Failed) and each.is_of_batch), None)
            limit = next((each for each in results if isinstance(each, Failed) and each.fault == "limit"), None)
        else:
            is_of_batch = results.code == _INVALID_REQUEST or (results.code == _INVALID_PARAMS and len(calls) > 1)
            refusal = results if results.is_of_batch or is_of_batch else None
            limit = results if results.fault == "limit" else None
        if limit is not None:
            raise Unreachable("limited", limit.message, answer.retry_after_s or 0)
        if refusal is not None and is_list:
            return None
        for each in results if isinstance(results, list) else [results]:
            if isinstance(each, Failed) and each.is_of_answer:
                raise Unreachable("too-large", each.message)
        return [results] * len(calls) if isinstance(results, Failed) else results

    async def _wait_for_turn(self, calls: int, now_s: float, patience_s: float) -> None:
        """Wait until so many calls have their turn; those that come later have theirs after them."""
        if self._spread_s < _SPREAD_S_MIN:
            self._spread_s = self._next_s = 0
            return
        turn_s = max(now_s, self._next_s)
        self._next_s = max(turn_s, min(turn_s + calls * self._spread_s, now_s + TURN_S_MAX))
        wait_s, taken_s = min(turn_s - now_s, patience_s), self._next_s - turn_s
        try:
            if wait_s > 0:
                await asyncio.sleep(wait_s)
        except asyncio.CancelledError:  # nothing was sent: others have their turns earlier
            self._next_s -= taken_s
            raise

    def _divide(self, calls: int) -> None:
        """Note that a request with so many calls was refused as a batch."""
        self.calls_max, self._refused, self._fitted = min(self.calls_max, calls // 2), calls, 0

    def _fit(self, calls: int) -> None:
        """Note that a request with so many calls was answered."""
        self._fitted += calls >= self.calls_max
        larger = min(CALLS_MAX, max(1, 2 * self.calls_max))
        if self._fitted >= _FITTED_MAX:
            self._refused = CALLS_MAX + 1
        if self._fitted >= _FITTED_FEW and larger < self._refused:
            self.calls_max, self._fitted = larger, 0

    def _rest(self, limited: Unreachable, now_s: float) -> None:
        """Rest for as long as the node asks, and longer each time; requests that met one quota together count once."""
        if self.rests_until_s > now_s:
            self._limited -= 1
        else:
            self._spread_s = min(_SPREAD_S_MAX, max(_SPREAD_S_FIRST, _SPREAD_GROWTH * self._spread_s))
        own_s = min(LIMITED_SECONDS_MAX, _LIMITED_SECONDS_FIRST * 2 ** min(self._limited, 16))
        self._limited += 1
        limited.seconds = min(LIMITED_SECONDS_MAX, max(limited.seconds, own_s))
        self.rests_until_s, self._said = max(self.rests_until_s, now_s + limited.seconds), str(limited)


async def _results(answer: Answer, url: str, count: int) -> list[Any] | Failed:
    """The results in an answer; `Failed`: one error for all calls. Raises `Unreachable`."""
    value = await _value(answer.content)
    if answer.status not in _OF_SERVERS:
        entries: Any = [value] if "result" in _members(value) and count == 1 else value
        if isinstance(entries, list):
            # A list of eight MiB has millions of entries.
            listed = cast("list[Any]", entries)[: count + 1]
            if (results := _matched(listed, count, url)) is not None:
                return results
            # geth answers a batch that is too long with one error, for its first call.
            errors = [error for each in listed if (error := _members(each).get("error")) is not None]
            if errors and len(errors) == len(listed) <= count:
                return _failed(errors[0], url)
    if answer.status == HTTPStatus.OK and _members(value).get("error") is None:
        raise Unreachable("garbage", "the answer is not that to the calls")
    return _failed_request(answer, value, url)


async def _value(content: bytes) -> Any:
    """The JSON value of an answer; None where it is not JSON."""
    try:
        # One of eight MiB takes a tenth of a second.
        is_small = len(content) <= SMALL_ANSWER_BYTES_MAX
        return parse_json(content) if is_small else await asyncio.to_thread(parse_json, content)
    except ValueError:
        return None


def _matched(entries: list[Any], count: int, url: str) -> list[Any] | None:
    """The results by the ids of the calls; None where the answers are not those to the calls."""
    if len(entries) != count:
        return None
    # `true` and 1.0 are equal to 1 in Python, but are not our ids; "1" can be no other.
    by_id = {str(number): each for each in map(_members, entries) if type(number := each.get("id")) in (int, str)}
    if set(by_id) != set(map(str, range(count))):
        return None
    found = [by_id[str(number)] for number in range(count)]
    return [each.get("result") if (error := _error_in(each)) is None else _failed(error, url) for each in found]


def _error_in(answer: dict[str, Any]) -> object:
    """The error in the answer to a call; None where there is none, which some nodes write beside a result."""
    error: object = answer.get("error")
    return None if "result" in answer and (error is False or error == "") else error


def _members(value: object) -> dict[str, Any]:
    """The members of a JSON object; those of another value are none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _failed_request(answer: Answer, value: Any, url: str) -> Failed:
    """The failure of a whole request. Raises `Unreachable` where the server before the node failed."""
    members = _members(value)
    error: object = next((members[name] for name in ("error", "message", "detail") if members.get(name)), "")
    if value is None:  # pages of proxies say nothing that a line could show
        text = answer.content[:_TEXT_BYTES_MAX].decode("utf-8", "replace").strip()
        error = "" if text.startswith("<") else text
    failed = _failed(error, url)
    status = answer.status
    is_batch = failed.is_of_batch or status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    if failed.fault == "limit" or (status == HTTPStatus.TOO_MANY_REQUESTS and not is_batch):
        raise Unreachable("limited", failed.message, answer.retry_after_s or 0)
    if status in _OF_SERVERS or (not is_batch and not members):
        raise Unreachable(f"http-{status}", failed.message)
    return replace(failed, is_of_batch=is_batch, message=failed.message or f"status {status}")


def _failed(error: object, url: str) -> Failed:
    """The failure that an `error` of JSON-RPC tells; some nodes send a text alone."""
    members = _members(error) or {"message": error}
    code = number if type(number := members.get("code")) is int else 0
    said = message if isinstance(message := members.get("message"), str) else ""
    data = members.get("data")
    data = _members(data).get("message", data)
    more = data if isinstance(data, str) and not data.startswith("0x") else ""
    both = said if more in said else f"{said}: {more}" if said else more
    fault = fault_of(code, said, more)
    return Failed(
        code,
        sentence_of(both, url) or (f"error {code}" if code else ""),
        fault,
        is_of_batch=fault == "node" and is_of_batch(both),
        is_of_answer=fault == "node" and is_of_answer(both),
    )
