"""Reads a DAG: files, byte ranges, names in directories, and its blocks in the order of a CAR file.

A `GetBlock` gives the blocks; it raises `ContentNotFound` for a missing root. A missing block below the root means that
the store has lost it, and raises `Integrity`. The walk checks depth and sizes, so a hostile DAG costs no more than its
real bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from muniment.protocol.errors import ContentNotFound, Integrity, InvalidParameter
from muniment.protocol.ipfs.block import GetBlock
from muniment.protocol.ipfs.cid import DAG_PB, IDENTITY, RAW, CidParts
from muniment.protocol.ipfs.dag_pb import Link, decode_node
from muniment.protocol.ipfs.unixfs import Kind, decode_unixfs

# Chunks of 256 KiB under nodes of 174 links reach 2^63 bytes with seven levels; narrower trees need a few more.
DEPTH_MAX: Final = 32
_ENTITY_BYTES: Final = re.compile(r"(-?[0-9]{1,19}):(\*|-?[0-9]{1,19})", re.ASCII)


class Scope(StrEnum):
    """The part of the DAG at the end of a path to send (trustless gateway specification, `dag-scope`)."""

    BLOCK = "block"
    ENTITY = "entity"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class EntityBytes:
    """A byte range of a file (trustless gateway specification, `entity-bytes`).

    Both ends are included. A negative number counts back from the end of the file; `last` None means the end.
    """

    first: int
    last: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `from:to`, where `to` may be `*`; raises `InvalidParameter`."""
        match = _ENTITY_BYTES.fullmatch(text)
        if not match:
            raise InvalidParameter("entity-bytes is from:to, two whole numbers, the second of which may be *")
        first, last = int(match[1]), None if match[2] == "*" else int(match[2])
        if last is not None and first > last and (first < 0) == (last < 0):
            raise InvalidParameter("entity-bytes ends before it starts")
        return cls(first, last)

    def within(self, size: int) -> tuple[int, int]:
        """The part of a file of `size` bytes, as (start, end), with the end excluded; start = end if it is empty."""
        start = max(self.first + size, 0) if self.first < 0 else min(self.first, size)
        if self.last is None:
            return start, size
        end = self.last + 1 + (size if self.last < 0 else 0)
        return start, max(start, min(end, size))


@dataclass(frozen=True, slots=True)
class _Entity:
    """A block as a piece of UnixFS: first its own `data`, then the children, each with its size in the file."""

    kind: Kind
    block: bytes
    size: int
    data: bytes
    children: tuple[tuple[CidParts, int], ...]
    names: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class _Visit:
    """A block of a file; its own data starts at `offset` in the file."""

    cid: CidParts
    offset: int
    entity: _Entity


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a file that is not loaded yet; its parent gives its `size`."""

    cid: CidParts
    offset: int
    size: int
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The part of a file or directory to send."""

    target: CidParts
    is_root: bool
    scope: Scope
    entity_bytes: EntityBytes | None
    repeats: bool


@dataclass(frozen=True, slots=True)
class File:
    """A file with a valid root block. `size` is its length in bytes."""

    cid: CidParts
    size: int
    _get_block: GetBlock
    _entity: _Entity

    def read(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to `end` (excluded); reads only the leaves with these bytes."""
        end = self.size if end is None else min(end, self.size)
        for visit in _visit_file(self._get_block, _Visit(self.cid, 0, self._entity), start, end, repeats=True):
            piece = visit.entity.data[max(start - visit.offset, 0) : max(end - visit.offset, 0)]
            if piece:
                yield piece


def resolve(get_block: GetBlock, root: CidParts, path: Iterable[str]) -> list[CidParts]:
    """The CIDs along `path`, from the root to the target; raises `ContentNotFound`."""
    passed = [root]
    for name in path:
        wanted = name.encode("utf-8", "surrogatepass")
        entity = _load(get_block, passed[-1], is_root=len(passed) == 1)
        found = next((link.cid for link in entity.names if link.name == wanted), None)
        if found is None:
            raise ContentNotFound("the path leads to nothing in this content")
        passed.append(found)
    return passed


def open_file(get_block: GetBlock, root: CidParts, path: Iterable[str] = ()) -> File:
    """The file at `path` below `root`; raises `ContentNotFound` if there is none."""
    *passed, cid = resolve(get_block, root, path)
    entity = _load(get_block, cid, is_root=not passed)
    if entity.kind is not Kind.FILE:
        raise ContentNotFound("the path leads to a directory, not to a file")
    return File(cid, entity.size, get_block, entity)


def walk(
    get_block: GetBlock,
    root: CidParts,
    *,
    path: Sequence[str] = (),
    scope: Scope = Scope.ALL,
    entity_bytes: EntityBytes | None = None,
    duplicates: bool = False,
) -> Iterator[tuple[CidParts, bytes]]:
    """The blocks of a CAR of `root` and `path`, depth first in the order of the links.

    The blocks of the path come first, then those of `scope`; `entity_bytes` implies the scope entity and applies only
    to files. Without `duplicates` each block comes once. An identity CID has no block. Errors of the first block are
    raised when the caller takes it.
    """
    if root.hash_code == IDENTITY:
        return
    *passed, target = resolve(get_block, root, path)
    if entity_bytes is not None:
        scope = Scope.ENTITY
    seen: set[bytes] = set()
    for cid in passed:
        seen.add(cid.digest)
        yield cid, get_block(cid.digest)
    wanted = _Wanted(target=target, is_root=not passed, scope=scope, entity_bytes=entity_bytes, repeats=duplicates)
    for cid, block in _scoped(get_block, wanted):
        if duplicates or cid.digest not in seen:
            seen.add(cid.digest)
            yield cid, block


def _scoped(get_block: GetBlock, wanted: _Wanted) -> Iterator[tuple[CidParts, bytes]]:
    if wanted.scope is Scope.ALL:
        yield from _visit_all(get_block, wanted)
        return
    if wanted.scope is Scope.BLOCK:
        yield wanted.target, _fetch(get_block, wanted.target, is_root=wanted.is_root)
        return
    entity = _load(get_block, wanted.target, is_root=wanted.is_root)
    start, end = (wanted.entity_bytes or EntityBytes(0)).within(entity.size)
    for visit in _visit_file(get_block, _Visit(wanted.target, 0, entity), start, end, repeats=wanted.repeats):
        yield visit.cid, visit.entity.block


def _visit_all(get_block: GetBlock, wanted: _Wanted) -> Iterator[tuple[CidParts, bytes]]:
    """The target and all blocks below it. Without `repeats`, no part of the DAG is walked twice."""
    walked: set[CidParts] = set()
    stack = [(wanted.target, 0)]
    while stack:
        cid, depth = stack.pop()
        if not wanted.repeats and cid in walked:
            continue
        walked.add(cid)
        block = _fetch(get_block, cid, is_root=wanted.is_root and depth == 0)
        yield cid, block
        if cid.codec == DAG_PB:
            links = decode_node(block).links
            stack += [(link.cid, _deeper(depth)) for link in reversed(links)]


def _visit_file(get_block: GetBlock, root: _Visit, start: int, end: int, *, repeats: bool) -> Iterator[_Visit]:
    """The root of a file, and the blocks below it that hold bytes from `start` up to `end`.

    Without `repeats`, a part of the tree that was walked completely is not walked again. Every child must have the size
    that its parent gives, and that is never 0, so the walk is never longer than the file.
    """
    yield root
    whole: set[CidParts] = set()
    stack = _below(root, 0, start, end)
    while stack:
        part = stack.pop()
        if not repeats and start <= part.offset and part.offset + part.size <= end:
            if part.cid in whole:
                continue
            whole.add(part.cid)
        entity = _load(get_block, part.cid, is_root=False)
        if entity.kind is not Kind.FILE or entity.size != part.size:
            raise Integrity("a stored file contradicts its own tree")
        visit = _Visit(part.cid, part.offset, entity)
        yield visit
        stack += _below(visit, part.depth, start, end)


def _below(visit: _Visit, depth: int, start: int, end: int) -> list[_Part]:
    """The children that hold bytes from `start` up to `end`, last one first for the stack."""
    parts: list[_Part] = []
    at = visit.offset + len(visit.entity.data)
    for cid, size in visit.entity.children:
        if start < end and at < end and at + size > start:
            parts.append(_Part(cid, at, size, _deeper(depth)))
        at += size
    parts.reverse()
    return parts


def _load(get_block: GetBlock, cid: CidParts, *, is_root: bool) -> _Entity:
    block = _fetch(get_block, cid, is_root=is_root)
    if cid.codec == RAW:
        return _Entity(Kind.FILE, block, len(block), block, (), ())
    node = decode_node(block)
    unixfs = decode_unixfs(node.data)
    if unixfs.kind is Kind.DIRECTORY:
        return _Entity(Kind.DIRECTORY, block, 0, b"", (), node.links)
    if len(node.links) != len(unixfs.child_sizes) or 0 in unixfs.child_sizes:
        raise Integrity("a stored file node does not say how long its parts are")
    children = tuple(zip((link.cid for link in node.links), unixfs.child_sizes, strict=True))
    return _Entity(Kind.FILE, block, unixfs.size, unixfs.data, children, ())


def _fetch(get_block: GetBlock, cid: CidParts, *, is_root: bool) -> bytes:
    if not cid.is_sha2_256 or cid.codec not in {DAG_PB, RAW}:
        raise Integrity("a stored node links to a kind of block that is not held here")
    try:
        return get_block(cid.digest)
    except ContentNotFound as error:
        if is_root:
            raise
        raise Integrity(f"block {cid.digest.hex()} of stored content is missing") from error


def _deeper(depth: int) -> int:
    if depth == DEPTH_MAX:
        raise Integrity(f"a stored DAG is deeper than {DEPTH_MAX} levels")
    return depth + 1
