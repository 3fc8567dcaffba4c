"""A client of a Kubo node's RPC (docs.ipfs.tech/reference/kubo/rpc): POST only, options in the query."""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from muniment.outgoing import Answer, Unreachable
from muniment.protocol.ipfs.car import car_header, car_section
from muniment.protocol.ipfs.dag import walk
from muniment.service.pins.answers import PinFailed, check_imported, message, release, says_pinned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from muniment.outgoing import Outgoing
    from muniment.protocol.ipfs.block import GetBlock
    from muniment.protocol.ipfs.cid import CidParts

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
