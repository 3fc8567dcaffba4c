"""What one node has of a range of blocks: its logs with the times of their blocks, all of one chain."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.chains.logs import ChainLog, ask_logs, block_in, may_be_size, read_logs
from muniment.chains.nodes import CALLS_MAX
from muniment.chains.rpc import Call, Failed
from muniment.outgoing import Unreachable

if TYPE_CHECKING:
    from muniment.chains.logs import BlockFacts, LogFilter, LogsAnswer
    from muniment.chains.nodes import Block, Node, Nodes

# Logs of one step; a range with more is read in parts.
LOGS_MAX: Final = 500
# More logs of such a range are of no use: these show which contracts are busy.
EXCESS_MAX: Final = 2_000
# Requests of a range that are on their way to one node at once.
_AT_ONCE: Final = 16
# Blocks in one request: each is asked by hash and by number, and the last block of the range once more.
_BLOCKS_AT_ONCE: Final = (CALLS_MAX - 1) // 2

# The times of blocks, in Unix seconds, by number and hash.
Times = dict[tuple[int, bytes], int]


class RangeView(NamedTuple):
    """What a node has of a range: the hash of its last block, and logs with the time of their block (Unix seconds).

    Of a range with more than `LOGS_MAX` logs, which is read in parts, only the time of the newest block with a log is
    asked for, and given for all. Not all filters may have been asked then.
    """

    last: bytes
    logs: dict[ChainLog, int]
    odd: Counter[str]


class Refusal(NamedTuple):
    """A node refused a range, maybe for its size; `is_error`: it answered with an error for these filters."""

    filters: tuple[LogFilter, ...]
    reason: str
    is_error: bool

    @property
    def is_late(self) -> bool:
        """Whether the node, or a server before it, gave no answer in time."""
        return self.reason in {"timeout", "http-504", "http-524"}


async def range_view(
    nodes: Nodes, node: Node, filters: Sequence[LogFilter], first: int, last: int, *, bytes_max: int,
    newest: Block | None, learned: dict[bytes, Times],
) -> RangeView | Refusal | None:  # fmt: skip
    """What the node has of the blocks from `first` to `last`; None: it lacks some now, or its chain changed meanwhile.

    Logs count only where the last block has one hash in all answers, of at most `bytes_max`, and where the first answer
    has the `newest` block that was read, if any. `learned` has what an earlier try learned of the same last block: a
    node that fails now and then would never answer for a long range otherwise. Raises `Unreachable`.
    """
    odd, logs, marks = Counter[str](), dict[ChainLog, None](), set[bytes | None]()
    for at in range(0, len(filters), _AT_ONCE):
        piece = filters[at : at + _AT_ONCE]
        answers = await asyncio.gather(
            *(
                _part(ask_logs(nodes, node, each, first, last, bytes_max, None if place else newest), each, first, last)
                for place, each in enumerate(piece, at)
            )
        )
        if refusal := _refusal(piece, answers):
            return refusal
        for answer in answers:
            assert not isinstance(answer, Unreachable | Failed)  # noqa: S101 - see `_refusal`
            marks |= {answer.before, answer.after}
            logs |= dict.fromkeys(answer.logs)
            odd.update(answer.odd)
        if len(logs) > EXCESS_MAX and last > first:  # the range is read in parts anyway
            break
    (mark, *others) = marks
    if mark is None or others:
        return None
    is_too_much = len(logs) > LOGS_MAX and last > first
    highest = max((log.block_number for log in logs), default=last)
    asked = [log for log in logs if log.block_number == highest] if is_too_much else list(logs)
    if mark not in learned:
        learned.clear()
    times = learned.setdefault(mark, {})
    if not await _learn_times(nodes, node, asked, last, mark, times):
        return None
    if is_too_much:
        return RangeView(mark, dict.fromkeys(logs, max(times.get(log[:2], 0) for log in asked)), odd)
    canonical = {log: times[log[:2]] for log in logs if log[:2] in times}
    odd["elsewhere"] += len(logs) - len(canonical)
    return RangeView(mark, canonical, odd)


class _Part(NamedTuple):
    """The logs for one filter, the hash of the last block before and after, and how many logs were odd."""

    before: bytes | None
    logs: list[ChainLog]
    after: bytes | None
    odd: Counter[str]


async def _part(
    question: Awaitable[LogsAnswer], wanted: LogFilter, first: int, last: int
) -> _Part | Failed | Unreachable:  # fmt: skip
    """An answer, read as it comes: of many, none is kept whole. A refusal counts where the node has the last block."""
    try:
        before, entries, after = await question
        if isinstance(entries, Failed):
            is_here = before is not None and after is not None
            return entries if is_here else _Part(None, [], None, Counter())
        odd = Counter[str]()
        return _Part(before, await read_logs(entries, wanted, first, last, odd), after, odd)
    except Unreachable as error:
        return error


def _refusal(filters: Sequence[LogFilter], answers: Sequence[_Part | Failed | Unreachable]) -> Refusal | None:
    """Raises `Unreachable` where a node failed for another reason than the size of the range."""
    large: list[LogFilter] = []
    reason, is_error = "", True
    for each, answer in zip(filters, answers, strict=True):
        if isinstance(answer, _Part):
            continue
        large.append(each)
        if isinstance(answer, Failed):
            reason = reason or answer.message
            continue
        if not may_be_size(answer.reason):
            raise answer
        reason, is_error = answer.reason, is_error and answer.reason == "too-large"
    return Refusal(tuple(large), reason, is_error) if large else None


async def _learn_times(
    nodes: Nodes, node: Node, logs: Sequence[ChainLog], last: int, mark: bytes, times: Times
) -> bool:
    """Learn the times of the blocks with logs that the node has at their numbers.

    False: it lacks one of them, or its chain has changed. Raises `Unreachable` where it contradicts itself.
    """
    hashes: dict[int, Counter[bytes]] = {}
    for log in logs:
        hashes.setdefault(log.block_number, Counter())[log.block_hash] += 1
    numbers = sorted(hashes.keys() - {number for number, _ in times})
    # As many as fit in one request of this node: what it answered before it failed was learned.
    at_once = max(1, min(CALLS_MAX, node.endpoint.calls_max) - 1) // 2 or 1
    for at in range(0, len(numbers), at_once):
        piece = numbers[at : at + at_once]
        names = [hashes[number].most_common(1)[0][0] for number in piece]
        calls = [
            *(Call("eth_getBlockByHash", ("0x" + name.hex(), False)) for name in names),
            *(Call("eth_getBlockByNumber", (hex(number), False)) for number in (*piece, last)),
        ]
        *answers, mark_again = await nodes.ask(node, calls, patience_s=nodes.patience_s)
        newest = block_in(mark_again)
        if newest is None or newest.hash != mark:
            return False
        halves = zip(piece, names, answers[: len(piece)], answers[len(piece) :], strict=True)
        failures: list[Unreachable] = []
        for number, name, by_hash, by_number in halves:
            try:
                block = _block_at(number, name, block_in(by_hash), block_in(by_number))
            except Unreachable as error:
                failures.append(error)
                continue
            if block is None:
                return False
            times[number, block.hash] = block.time_s
        if failures:
            raise failures[0]
    return True


def _block_at(number: int, name: bytes, by_hash: BlockFacts | None, by_number: BlockFacts | None) -> BlockFacts | None:
    """The block with a number, of which logs say that its hash is `name`; None: the node lacks it now.

    Raises `Unreachable` where the node contradicts itself.
    """
    if by_number is None or (by_hash is None and by_number.hash == name):
        return None
    if by_number.number != number or (by_number.hash == name and by_hash != by_number):
        raise Unreachable("garbage", "a block that is another one by its number")
    return by_number
