"""Checks of well-formed heads of requests, and the path and query of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.errors import HttpVersionNotSupported, MalformedRequest, TransferCodingNotSupported

if TYPE_CHECKING:
    from muniment.errors import Refusal

VERSIONS: Final = frozenset({"1.0", "1.1"})


def head_refusal(
    target: bytes, fields: list[tuple[bytes, bytes]], named: dict[bytes, bytes], version: str
) -> Refusal | None:
    """Why a well-formed head cannot be served."""
    if version not in VERSIONS:
        return HttpVersionNotSupported("this server speaks HTTP/1.1")
    if version == "1.1" and (
        b"host" not in named or (len(named) != len(fields) and [name for name, _ in fields].count(b"host") != 1)
    ):
        return MalformedRequest("a request needs exactly one Host field (RFC 9112 section 3.2)")
    if target[:1] != b"/" and b"://" in target and b"/" not in target.partition(b"://")[2]:
        return MalformedRequest("the request target has no path (RFC 9112 section 3.2.2)")
    coding = named.get(b"transfer-encoding")
    if coding is not None:
        if version == "1.0":
            return MalformedRequest("HTTP/1.0 has no Transfer-Encoding (RFC 9112 section 6.1)")
        if coding.strip().lower() != b"chunked" or sum(name == b"transfer-encoding" for name, _ in fields) > 1:
            return TransferCodingNotSupported("chunked is the only supported transfer coding (RFC 9112 section 6.1)")
    return None


def path_and_query(target: bytes) -> tuple[str, bytes]:
    """Path and query of a request target, without a fragment; the path of an absolute one follows its authority."""
    if target[:1] == b"/" and b"#" not in target:
        path, _, query = target.partition(b"?")
        return path.decode("latin-1"), query
    before, _, _ = target.partition(b"#")
    path, _, query = before.partition(b"?")
    if path[:1] != b"/" and b"://" in path:
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return path.decode("latin-1"), query
