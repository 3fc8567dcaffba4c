"""The workers of a serving process: each takes a bundle that is due, and gives it to the node.

Retries never end. A bundle that fails waits longer each time, up to an hour. When the node itself cannot be used, the
bundles keep their place and the worker rests, at most half a minute: after an outage everything goes on within that.

The node speaks Kubo's RPC (docs.ipfs.tech/reference/kubo/rpc): POST only, options in the query. Its answers are read
strictly: it may be wrong, or another program. JSON comes as one object, or as one object in each line.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from muniment.outgoing import Answer, Outgoing, Unreachable
from muniment.protocol.errors import InvalidCid, InvalidJson, Refusal
from muniment.protocol.ipfs.car import car_header, car_section
from muniment.protocol.ipfs.cid import decode_cid
from muniment.protocol.ipfs.dag import walk
from muniment.protocol.json_text import parse_json
from muniment.service.pins import queue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from muniment.protocol.ipfs.block import GetBlock
    from muniment.protocol.ipfs.cid import CidParts
    from muniment.service.context import Context
    from muniment.service.pins.queue import Taken

# Characters of a reason that are kept: enough for a sentence of a node with a CID in it.
REASON_LENGTH_MAX: Final = 300


class PinFailed(Exception):
    """The node has not pinned this bundle, but may pin others. The text is the reason, on one line."""


def check_imported(content: bytes, root: CidParts) -> None:
    """Return if the lines of a `dag/import` report that `root` was pinned; raise `PinFailed` otherwise."""
    is_pinned = False
    for line in filter(None, content.splitlines()):
        answer = _object(line)
        if "Message" in answer:  # an error after the answer began (Kubo's `Error`)
            raise PinFailed(f"dag/import failed: {reason(str(answer['Message']))}")
        if "Root" not in answer:
            continue  # statistics, or what a later release adds
        answered = _member(answer, "Root")
        if text := answered.get("PinErrorMsg"):
            raise PinFailed(f"the node did not pin: {reason(str(text))}")
        if not _is_same(_member(answered, "Cid").get("/"), root):
            raise PinFailed("the node answered with another root")
        is_pinned = True
    if not is_pinned:
        raise PinFailed("the answer of dag/import ends without the root")


def says_pinned(content: bytes, root: CidParts) -> bool:
    """Whether the answer of a `pin/ls` names `root` as pinned recursively. Raises `PinFailed` for another form."""
    keys = _member(_object(content), "Keys")
    return any(
        _is_same(key, root) and isinstance(pin, dict) and cast("dict[str, Any]", pin).get("Type") == "recursive"
        for key, pin in keys.items()
    )


def release(content: bytes) -> str:
    """The release in the answer of `version`. Raises `PinFailed` for another form."""
    return reason(str(_object(content).get("Version", "")))


def message(content: bytes) -> str:
    """The reason in an answer that is an error: the `Message` of a JSON object, or the text itself."""
    try:
        value: Any = parse_json(content)
    except InvalidJson:
        value = None
    if isinstance(value, dict) and "Message" in value:
        return reason(str(cast("dict[str, Any]", value)["Message"]))
    return reason(content.decode("utf-8", "replace"))


def reason(text: str) -> str:
    """A text of a node on one line of printable characters, at most `REASON_LENGTH_MAX` of them."""
    shown = "".join(each if each.isprintable() else " " for each in text[: 4 * REASON_LENGTH_MAX])
    return " ".join(shown.split())[:REASON_LENGTH_MAX]


def _object(text: bytes) -> dict[str, Any]:
    try:
        value: Any = parse_json(text)
    except InvalidJson as error:
        raise PinFailed("the node did not answer with JSON") from error
    if not isinstance(value, dict):
        raise PinFailed("the node did not answer with a JSON object")
    return cast("dict[str, Any]", value)


def _member(value: dict[str, Any], name: str) -> dict[str, Any]:
    """An object inside another."""
    inner = value.get(name)
    if not isinstance(inner, dict):
        raise PinFailed(f"the node answered without the object {name}")
    return cast("dict[str, Any]", inner)


def _is_same(text: object, root: CidParts) -> bool:
    """Whether a CID, in either version, names the block `root`."""
    try:
        cid = decode_cid(text) if isinstance(text, str) else None
    except InvalidCid:
        return False
    return cid is not None and (cid.codec, cid.multihash) == (root.codec, root.multihash)


# The answers are a few lines, each with a CID.
ANSWER_BYTES_MAX: Final = 64 * 1024
LOOK_SECONDS_MAX: Final = 10.0
# A bundle of 16 MiB at a little more than a megabit per second.
IMPORT_SECONDS_MAX: Final = 120.0
_OK: Final = 200
# The statuses about a single bundle. Any other status is about the node.
_ABOUT_THE_BUNDLE: Final = frozenset({400, 413, 500})
# pin/ls answers so for content that is not pinned.
_NOT_PINNED: Final = 500
_MASK: Final = b"********"


class NodeFailed(Exception):
    """The node cannot be used now for any bundle. The text is the reason, on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The node at `url`. `authorization` is sent as the header field of this name, unless it is empty."""

    outgoing: Outgoing
    url: str
    authorization: str = field(default="", repr=False)
    look_seconds_max: float = LOOK_SECONDS_MAX
    import_seconds_max: float = IMPORT_SECONDS_MAX

    async def version(self) -> str:
        """The release that the node reports. Raises `NodeFailed`."""
        answer = await self._look("version")
        if answer.status != _OK:
            raise NodeFailed(_refusal("version", answer))
        try:
            return release(answer.content)
        except PinFailed as error:
            raise NodeFailed(f"version: {error}") from None

    async def has_pinned(self, root: CidParts) -> bool:
        """Whether the node has pinned `root` with everything below it. Raises `NodeFailed`."""
        base = "&cid-base=base32" if root.version else ""  # a node may write a CIDv1 in another base of its own accord
        answer = await self._look(f"pin/ls?arg={root.text}&type=recursive{base}")
        if answer.status == _NOT_PINNED:
            return False  # if the node has another fault, the import reports it
        if answer.status != _OK:
            raise NodeFailed(_refusal("pin/ls", answer))
        try:
            return says_pinned(answer.content, root)
        except PinFailed as error:
            raise NodeFailed(f"pin/ls: {error}") from None

    async def pin(self, root: CidParts, get_block: GetBlock) -> None:
        """Send the blocks of the bundle as a CAR file, and check that the node has pinned its root.

        Raises `NodeFailed`, `PinFailed`, and the errors of `get_block`, which runs in threads.
        """
        boundary = secrets.token_hex(16)
        form_type = f"multipart/form-data; boundary={boundary}"
        try:
            answer = await self._send(
                "dag/import?pin-roots=true&stats=true&silent=false", _form(boundary, root, get_block),
                self.import_seconds_max, ("content-type", form_type),
            )  # fmt: skip
        except Unreachable as error:
            raise PinFailed(f"dag/import: {error.reason}") from None
        if answer.status == _OK:
            check_imported(answer.content, root)
        elif answer.status in _ABOUT_THE_BUNDLE:
            raise PinFailed(_refusal("dag/import", answer))
        else:
            raise NodeFailed(_refusal("dag/import", answer))

    async def _look(self, command: str) -> Answer:
        """The answer to a command without a body. Raises `NodeFailed`."""
        try:
            return await self._send(command, b"", self.look_seconds_max)
        except Unreachable as error:
            raise NodeFailed(f"{command.partition('?')[0]}: {error.reason}") from None

    async def _send(
        self, command: str, body: bytes | AsyncIterator[bytes], seconds_max: float, *fields: tuple[str, str]
    ) -> Answer:
        """The answer to a command, without the credentials, which a node may repeat. Raises `Unreachable`."""
        own = (("authorization", self.authorization),) if self.authorization else ()
        status, content = await self.outgoing.send(
            f"{self.url.rstrip('/')}/api/v0/{command}", (*own, *fields), body,
            seconds_max=seconds_max, bytes_max=ANSWER_BYTES_MAX,
        )  # fmt: skip
        if secret := self.authorization.rpartition(" ")[2]:
            content = _in_json(secret).sub(_MASK, content)
        return Answer(status, content)


def _in_json(secret: str) -> re.Pattern[bytes]:
    """A pattern of the secret, also with characters that JSON escapes (RFC 8259 section 7), such as Go's `&`."""
    forms = (rf"(?>(?i:\\u{ord(each):04x})|\\?{re.escape(each)})" for each in secret)
    return re.compile("".join(forms).encode())


def _refusal(command: str, answer: Answer) -> str:
    said = message(answer.content)
    return f"{command} answered {answer.status}" + (f": {said}" if said else "")


async def _form(boundary: str, root: CidParts, get_block: GetBlock) -> AsyncIterator[bytes]:
    """The body of a form with one file, a CAR of `root`. One block is in memory at a time."""
    yield (
        f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="bundle.car"\r\n'
        "content-type: application/vnd.ipld.car\r\n\r\n"
    ).encode()
    sections = _sections(root, get_block)
    while section := await asyncio.to_thread(next, sections, b""):
        yield section
    yield f"\r\n--{boundary}--\r\n".encode()


def _sections(root: CidParts, get_block: GetBlock) -> Iterator[bytes]:
    """The parts of a CAR file with one root: its header, then a section for each block."""
    yield car_header([root])
    for cid, block in walk(get_block, root):
        yield car_section(cid, block)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinLimits:
    """The limits of the workers of one process."""

    # Bundles that a process sends concurrently: one that is slow does not hold up all others.
    workers: int = 2
    # The pause when no bundle is due: as long as an upload waits for its pin.
    idle_seconds: float = 2.0
    # The pause after the node could not be used, doubled each time.
    rest_seconds: float = 1.0
    rest_seconds_max: float = 30.0
    # The pause between two attempts with one bundle, doubled each time.
    wait_ms: int = 2_000
    wait_ms_max: int = queue.WAIT_MS_MAX
    look_seconds_max: float = LOOK_SECONDS_MAX
    import_seconds_max: float = IMPORT_SECONDS_MAX
    # For how long a bundle is taken: for its two requests, and for the writes of a busy database.
    lease_ms: int = int((LOOK_SECONDS_MAX + IMPORT_SECONDS_MAX) * 1000) + 50_000
    # The pause between two searches for bundles that are not in the queue.
    search_seconds: float = 3_600.0
    # The pause between two counts of the bundles that wait.
    count_seconds: float = 30.0


PIN_LIMITS: Final = PinLimits()

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pinner:
    """Pins the bundles of a registry at the node of its settings, until cancelled.

    `on_count` gets the number of waiting bundles, periodically.
    """

    context: Context
    limits: PinLimits = PIN_LIMITS
    on_count: Callable[[int], None] | None = None

    async def run(self) -> None:
        """Work until cancelled. The operator named the node, so it may be at a private or loopback address."""
        settings, limits = self.context.settings, self.limits
        async with Outgoing(allow_private=True) as outgoing, asyncio.TaskGroup() as group:
            node = Node(
                outgoing=outgoing, url=settings.ipfs_pin_url, authorization=settings.ipfs_pin_authorization,
                look_seconds_max=limits.look_seconds_max, import_seconds_max=limits.import_seconds_max,
            )  # fmt: skip
            group.create_task(self._search())
            group.create_task(self._count())
            for _ in range(limits.workers):
                group.create_task(self._work(node))

    async def _search(self) -> None:
        """Periodically add the bundles that are not in the queue."""
        while True:
            seconds = self.limits.search_seconds
            try:
                if added := await queue.add_missing(self.context.database, self.context.clock.now_ms()):
                    _log.info("bundles added to the queue of pins", count=added)
            except Exception as error:  # noqa: BLE001 - one of these tasks that ended would end all of them
                _log.warning("cannot look for bundles to pin", error=type(error).__name__, detail=str(error))
                seconds = self.limits.rest_seconds_max
            await asyncio.sleep(seconds)

    async def _count(self) -> None:
        """Periodically report the number of waiting bundles."""
        while True:
            try:
                waiting = await queue.count_waiting(self.context.database)
            except Exception as error:  # noqa: BLE001 - as above
                _log.warning("cannot count the bundles to pin", error=type(error).__name__, detail=str(error))
            else:
                if waiting:
                    _log.info("bundles wait to be pinned", count=waiting)
                if self.on_count is not None:
                    self.on_count(waiting)
            await asyncio.sleep(self.limits.count_seconds)

    async def _work(self, node: Node) -> None:
        """Pin bundles, one after the other."""
        failures = 0
        while True:
            try:
                is_idle = self.context.clock.doubt() is not None or not await self._pin_next(node)
            except Exception as error:  # noqa: BLE001 - a worker that ended would not come back
                failures += 1
                seconds = self._jittered(self.limits.rest_seconds, self.limits.rest_seconds_max, failures)
                _log.warning(
                    "no bundle can be pinned now", error=type(error).__name__, detail=str(error),
                    rests_s=round(seconds, 1),
                )  # fmt: skip
                await asyncio.sleep(seconds)
                continue
            failures = 0
            if is_idle:
                await asyncio.sleep(self._jittered(self.limits.idle_seconds, self.limits.idle_seconds, 1))

    async def _pin_next(self, node: Node) -> bool:
        """Pin the bundle that is due first; whether any was due. Raises `NodeFailed`, `Unavailable`."""
        context = self.context
        taken = await queue.take(context.database, context.clock.now_ms(), self.limits.lease_ms)
        if taken is None:
            return False
        try:
            if not await node.has_pinned(taken.cid.parts):
                await node.pin(taken.cid.parts, context.blocks.get)
        except NodeFailed as error:
            now_ms = context.clock.now_ms()
            await queue.give_back(context.database, taken, now_ms, taken.failures, str(error))
            raise
        except PinFailed as error:
            await self._put_off(taken, str(error))
        except Refusal as refusal:  # the blocks are damaged, lost, or cannot be read now
            await self._put_off(taken, f"{refusal.code}: {refusal.detail}")
        except asyncio.CancelledError:  # the process stops: another process need not wait for the end of the lease
            with suppress(Refusal):
                await queue.release(context.database, taken, context.clock.now_ms())
            raise
        else:
            await queue.finish(context.database, taken, context.clock.now_ms())
            _log.info("pinned", cid=taken.cid)
        return True

    async def _put_off(self, taken: Taken, error: str) -> None:
        """Try the bundle again later."""
        failures = taken.failures + 1
        wait_ms = int(self._jittered(self.limits.wait_ms, self.limits.wait_ms_max, failures))
        due_at_ms = self.context.clock.now_ms() + wait_ms
        await queue.give_back(self.context.database, taken, due_at_ms, failures, error)
        _log.warning("not pinned", cid=taken.cid, detail=error, failures=failures, waits_s=round(wait_ms / 1000))

    def _jittered(self, first: float, most: float, failures: int) -> float:
        """A pause that doubles with each failure, less a random part of up to half (jitter)."""
        chance = int.from_bytes(self.context.random_bytes(4)) / 2**32
        return min(most, first * 2.0 ** min(failures - 1, 32)) * (1 - chance / 2)
