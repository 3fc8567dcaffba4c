"""An IPFS node that speaks Kubo's RPC (docs.ipfs.tech/reference/kubo/rpc): POST only, options in the query.

Its answers are read strictly, and are bounded in size and time: it may be wrong, or another program.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import httpx2
import msgspec

from muniment.client.drivers import Blocking
from muniment.client.failures import NotARegistry, Reply, Unreachable
from muniment.client.flows.session import CREDENTIAL, checked_url
from muniment.client.steps import Flow, Send
from muniment.protocol.errors import InvalidJson
from muniment.protocol.ipfs.cid import DAG_PB, Cid, cid_v0, cid_v1
from muniment.protocol.json_text import parse_json
from muniment.text_files import read_text
from muniment.tls import tls_context

AUTHORIZATION: Final = "MUNIMENT_KUBO_AUTHORIZATION"
# The answers are a few lines, each with a CID.
ANSWER_BYTES_MAX: Final = 64 * 1024
# A bundle of 16 MiB at a little more than a megabit per second.
SECONDS_MAX: Final = 120.0
# Characters of a reason that are shown: enough for a sentence of a node with a CID in it.
_REASON_LENGTH_MAX: Final = 300
_OK: Final = 200
_FAILED: Final = 500
# The statuses that are about one bundle. So is 500 with a reason in JSON, which is Kubo's for a command that failed.
_ABOUT_THE_BUNDLE: Final = frozenset({400, 413})


class NodeAway(Exception):
    """The node cannot be used now for any bundle. The text says why."""


class NotPinned(Exception):
    """The node has not pinned this bundle, but may pin others. The text says why."""


class _Pin(msgspec.Struct):
    Type: str


class _Root(msgspec.Struct):
    Cid: dict[str, str]
    PinErrorMsg: str = ""


class _Statement(msgspec.Struct):
    """What an answer says, or a line of one: which pins there are, a root that was imported, why a command failed."""

    Keys: dict[str, _Pin] | None = None
    Root: _Root | None = None
    Message: str | None = None


@dataclass(frozen=True, slots=True)
class Kubo:
    """A node. `authorization` is sent as the header field of this name, unless it is empty."""

    driver: Blocking
    authorization: str = field(default="", repr=False)

    @classmethod
    @contextmanager
    def at(cls, url: str) -> Generator[Self]:
        """The node at `url`; credentials come from the environment. Raises `ValueError`."""
        own = authorization()
        try:
            url = checked_url(url)
        except ValueError as error:
            raise ValueError(f"--kubo: {error}") from error
        # No proxy of the environment sees what is for a node of one's own.
        with httpx2.Client(timeout=SECONDS_MAX, verify=tls_context(), trust_env=False) as http:
            yield cls(Blocking(url, http, answer_s_max=SECONDS_MAX, answer_bytes_max=ANSWER_BYTES_MAX), own)

    def has_pinned(self, cid: Cid) -> bool:
        """Whether the bundle is pinned with all its blocks, under either version of its CID. Raises `NodeAway`."""
        both = spellings(cid)
        return any(self._has_pinned(each, both) for each in both)

    def _has_pinned(self, cid: Cid, spellings: Collection[str]) -> bool:
        try:
            reply = self._ask(f"pin/ls?arg={cid}&type=recursive")
            if reply.status == _FAILED:  # so the node answers for content that is not pinned
                return False
            if reply.status == _OK:
                return says_pinned(reply.content, spellings)
        except (Unreachable, NotARegistry, NotPinned) as error:
            raise NodeAway(f"pin/ls: {error}") from error
        raise NodeAway(self._refusal("pin/ls", reply))

    def pin(self, cid: Cid, car: bytes) -> None:
        """Send a CAR file with the root `cid`, and check that the node has pinned it. Raises `NodeAway`, `NotPinned`.

        It is `NotPinned` too if no answer comes: the next look tells whether the node is away.
        """
        boundary = secrets.token_hex(16)
        form = (
            f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="bundle.car"\r\n'
            "content-type: application/vnd.ipld.car\r\n\r\n"
        )
        body = b"".join((form.encode(), car, f"\r\n--{boundary}--\r\n".encode()))
        headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
        try:
            reply = self._ask("dag/import?pin-roots=true&stats=true&silent=false", body, headers)
        except (Unreachable, NotARegistry) as error:
            raise NotPinned(f"dag/import: {error}") from error
        if reply.status == _OK:
            check_imported(reply.content, spellings(cid), self._reason)
            return
        is_refused = reply.status in _ABOUT_THE_BUNDLE or (reply.status == _FAILED and message(reply.content))
        raise (NotPinned if is_refused else NodeAway)(self._refusal("dag/import", reply))

    def _ask(self, command: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
        """The answer to a command. Raises as the driver."""
        own = {"authorization": self.authorization} if self.authorization else {}

        def flow() -> Flow[Reply]:
            return (yield Send("POST", f"/api/v0/{command}", body, {**own, **(headers or {})}))

        return self.driver.run(flow())

    def _refusal(self, command: str, reply: Reply) -> str:
        said = self._reason(message(reply.content) or reply.content.decode("utf-8", "replace"))
        return f"{command} answered {reply.status}" + (f": {said}" if said else "")

    def _reason(self, text: str) -> str:
        """A text of the node on one line, without the credentials, which a node may repeat."""
        secret = self.authorization.rpartition(" ")[2]
        return reason(_in_json(secret).sub("********", text) if secret else text)


def authorization() -> str:
    """The header field for the node, in a variable or the file that one names; empty without. Raises `ValueError`."""
    text = os.environ.get(AUTHORIZATION) or ""
    if file := os.environ.get(f"{AUTHORIZATION}_FILE"):
        try:
            text = read_text(Path(file)).strip()
        except (OSError, ValueError) as error:
            raise ValueError(f"{AUTHORIZATION}_FILE must name a text file that can be read: {error}") from error
        if not text:
            raise ValueError(f"{AUTHORIZATION}_FILE names an empty file")
    if text and CREDENTIAL.fullmatch(text) is None:
        raise ValueError(f"{AUTHORIZATION} has a line break or another character that HTTP headers do not allow")
    return text


def spellings(cid: Cid) -> tuple[Cid, Cid]:
    """The CIDs of a bundle in both versions: they name one pin."""
    return cid_v0(cid.digest), cid_v1(DAG_PB, cid.digest)


def says_pinned(content: bytes, spellings: Collection[str]) -> bool:
    """Whether the answer of a `pin/ls` names the bundle as pinned recursively. Raises `NotPinned` for another form."""
    if (pins := _decode(content).Keys) is None:
        raise NotPinned("the node answered without pins")
    return any(key in spellings and pin.Type == "recursive" for key, pin in pins.items())


def check_imported(content: bytes, spellings: Collection[str], show: Callable[[str], str]) -> None:
    """Return if the lines of a `dag/import` report that the bundle was pinned.

    Otherwise raise `NotPinned`, with the node's reason as `show` gives it.
    """
    statements = [_decode(line) for line in content.splitlines() if line]
    for each in statements:
        if each.Message is not None:  # an error after the answer began
            raise NotPinned(f"dag/import failed: {show(each.Message)}")
    roots = [each.Root for each in statements if each.Root is not None]
    for root in roots:
        if root.PinErrorMsg:
            raise NotPinned(f"the node did not pin: {show(root.PinErrorMsg)}")
        if root.Cid.get("/") not in spellings:
            raise NotPinned("the node answered with another root")
    if not roots:
        raise NotPinned("the answer of dag/import ends without the root")


def message(content: bytes) -> str:
    """The reason in an error of Kubo; empty for any other answer."""
    try:
        return _decode(content).Message or ""
    except NotPinned:
        return ""


def reason(text: str) -> str:
    """A text of a node on one line."""
    return " ".join(text[: 4 * _REASON_LENGTH_MAX].split())[:_REASON_LENGTH_MAX]


def _decode(content: bytes) -> _Statement:
    try:
        return msgspec.convert(parse_json(content), _Statement)
    except (InvalidJson, msgspec.ValidationError) as error:
        raise NotPinned("the node answered in another form than Kubo") from error


def _in_json(secret: str) -> re.Pattern[str]:
    """A pattern of the secret, also with characters that JSON escapes (RFC 8259 section 7), such as Go's `&`."""
    forms = (rf"(?>(?i:\\u{ord(each):04x})|\\?{re.escape(each)})" for each in secret)
    return re.compile("".join(forms))
