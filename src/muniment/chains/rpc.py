"""Ethereum JSON-RPC over HTTP, in batches. Nodes may answer in any order; every part of an answer is checked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from muniment.outgoing import SMALL_ANSWER_BYTES_MAX, Outgoing, Unreachable
from muniment.protocol.json_text import parse_json
from muniment.protocol.wire import encode


@dataclass(frozen=True, slots=True)
class Call:
    """One JSON-RPC request."""

    method: str
    params: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The error that a node sent instead of a result."""

    code: int
    message: str


def eth_call(data: bytes, *, to: str | None = None, block: str = "latest", gas: int | None = None) -> Call:
    """An `eth_call` with `data` to a contract; without `to`, `data` is creation code, which the node runs once."""
    transaction: dict[str, str] = {"data": "0x" + data.hex()}
    if to is not None:
        transaction["to"] = to
    if gas is not None:
        transaction["gas"] = hex(gas)
    return Call("eth_call", (transaction, block))


async def ask(
    outgoing: Outgoing,
    url: str,
    calls: Sequence[Call],
    *,
    seconds_max: float,
    bytes_max: int = SMALL_ANSWER_BYTES_MAX,
    chain_id: int,
) -> list[Any]:
    """The results of `calls` in their order, each a JSON value or `Failed`: one HTTP request to a node of a chain.

    Raises `Unreachable` (`garbage` if the answer does not match the calls, `too-large` beyond `bytes_max`).
    """
    begun = time.perf_counter()
    try:
        return await _ask(outgoing, url, calls, seconds_max=seconds_max, bytes_max=bytes_max)
    except Unreachable:
        outgoing.node_metrics.node_failed(chain_id)
        raise
    finally:
        outgoing.node_metrics.node_asked(chain_id, time.perf_counter() - begun)


async def _ask(outgoing: Outgoing, url: str, calls: Sequence[Call], *, seconds_max: float, bytes_max: int) -> list[Any]:
    batch = [
        {"jsonrpc": "2.0", "id": number, "method": call.method, "params": call.params}
        for number, call in enumerate(calls)
    ]
    answer = await outgoing.post(url, encode(batch), seconds_max=seconds_max, bytes_max=bytes_max)
    try:
        found = msgspec.convert(parse_json(answer), list[dict[str, Any]])
    except ValueError:
        raise Unreachable("garbage", "not a JSON-RPC batch answer") from None
    # `true` and 1.0 are equal to 1 in Python, but are not our ids.
    by_id = {entry["id"]: entry for entry in found if type(entry.get("id")) is int}
    if len(found) != len(calls) or set(by_id) != set(range(len(calls))):
        raise Unreachable("garbage", "the answers are not those to the calls")
    return [_result(by_id[number]) for number in range(len(calls))]


def _result(entry: dict[str, Any]) -> Any:
    if entry.get("error") is not None:
        error = cast("dict[str, Any]", entry["error"]) if isinstance(entry["error"], dict) else {}
        code, message = error.get("code"), error.get("message")
        return Failed(code if type(code) is int else 0, str(message)[:200])
    return entry.get("result")
