"""Answers of a node to `dag/import` and `pin/ls` (Kubo RPC), read strictly: it may be wrong, or another program.

JSON comes as one object, or as one object in each line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from muniment.protocol.errors import InvalidCid, InvalidJson
from muniment.protocol.ipfs.cid import decode_cid
from muniment.protocol.json_text import parse_json

if TYPE_CHECKING:
    from muniment.protocol.ipfs.cid import CidParts

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
        raise PinFailed("the node answered with something else than JSON") from error
    if not isinstance(value, dict):
        raise PinFailed("the node answered with something else than a JSON object")
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
