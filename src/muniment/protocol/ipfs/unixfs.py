"""UnixFS (specs.ipfs.tech/unixfs): files and directories as blocks, with the CIDs that Kubo would give them.

`import_file` cuts a file into chunks and builds a balanced tree over them as the bytes arrive. For a file of any
length, it holds one chunk and, per level of the tree, at most `width` links. `import_files` does the same for the files
of a directory. Both are generators of blocks; `Import` keeps the root that they return:

    bundle = Import(import_files({"manifest.json": [manifest], "function.wasm": pieces}, UNIXFS_V0_2015))
    store.put_many(bundle)
    bundle.root.cid
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from muniment.protocol.errors import Integrity
from muniment.protocol.ipfs.block import BLOCK_SIZE_MAX, Block, block_of
from muniment.protocol.ipfs.cid import DAG_PB, RAW, SHA2_256, Cid, CidParts
from muniment.protocol.ipfs.dag_pb import Link, decode_fields, encode_node
from muniment.protocol.ipfs.varint import encode_varint

# With larger chunks, the fields around a chunk could make its block too large.
CHUNK_SIZE_MAX: Final = BLOCK_SIZE_MAX - 1024
# The tag of the size of a child: each child has one.
_REPEATED: Final = (0x20,)


@dataclass(frozen=True, slots=True)
class Profile:
    """The choices on which the CID of a file depends (IPIP-0499). The hash is sha2-256, the layout balanced."""

    name: str
    cid_version: int
    raw_leaves: bool
    chunk_size: int
    width: int

    def __post_init__(self) -> None:
        """Raise `ValueError` for an impossible profile, which is a programmer's mistake."""
        if self.cid_version not in {0, 1} or not 1 <= self.chunk_size <= CHUNK_SIZE_MAX or self.width <= 1:
            raise ValueError(f"profile {self.name} cannot be built")


UNIXFS_V0_2015: Final = Profile("unixfs-v0-2015", cid_version=0, raw_leaves=False, chunk_size=262_144, width=174)
UNIXFS_V1_2025: Final = Profile("unixfs-v1-2025", cid_version=1, raw_leaves=True, chunk_size=1_048_576, width=1024)
PROFILES: Final[Mapping[str, Profile]] = {profile.name: profile for profile in (UNIXFS_V0_2015, UNIXFS_V1_2025)}


class Kind(IntEnum):
    """The kinds of UnixFS nodes that this module writes and reads (UnixFS `DataType`)."""

    DIRECTORY = 1
    FILE = 2


@dataclass(frozen=True, slots=True)
class UnixFsData:
    """The UnixFS message in a dag-pb node. `size`: the bytes of the file in and below the node, 0 for a directory."""

    kind: Kind
    data: bytes = b""
    size: int = 0
    child_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Root:
    """The root of an import.

    `tsize` is the total size of its blocks, as in a link to it (repeated blocks count each time); `size` is the size of
    the file, or of all files of the directory; `entries` are the entries of a directory.
    """

    parts: CidParts
    tsize: int
    size: int
    entries: Mapping[str, Root] = field(default_factory=dict[str, "Root"], hash=False)

    @property
    def cid(self) -> Cid:
        """The CID as text."""
        return Cid(self.parts.text)


class Import:
    """The blocks of an import, which can be iterated over once; `root` is known after the last block."""

    def __init__(self, steps: Generator[Block, None, Root]) -> None:
        self._steps = steps
        self._root: Root | None = None

    def __iter__(self) -> Iterator[Block]:
        self._root = yield from self._steps

    @property
    def root(self) -> Root:
        """The root. Raises `RuntimeError` until the last block was taken."""
        if self._root is None:
            raise RuntimeError("the import has not ended")
        return self._root


def import_file(pieces: Iterable[bytes], profile: Profile) -> Generator[Block, None, Root]:
    """The blocks of a file, which arrives in pieces of any size; children before parents. Returns its root."""
    levels: list[list[Root]] = [[]]
    for chunk in _chunks(pieces, profile.chunk_size):
        leaf, block = _leaf(chunk, profile)
        yield block
        yield from _append(levels, 0, leaf, profile)
    if not levels[0]:
        root, block = _leaf(b"", profile)
        yield block
        return root
    # Close from the bottom, so that every leaf has the same depth: even a single last leaf gets a parent.
    level = 0
    while level < len(levels) - 1 or len(levels[level]) > 1:
        parent, block = _parent(levels[level], profile)
        yield block
        yield from _append(levels, level + 1, parent, profile)
        level += 1
    return levels[level][0]


def import_files(files: Mapping[str, Iterable[bytes]], profile: Profile) -> Generator[Block, None, Root]:
    """The blocks of these files and of their directory; returns the root of the directory."""
    entries: dict[str, Root] = {}
    for name, pieces in files.items():
        entries[name] = yield from import_file(pieces, profile)
    root, block = directory(entries, profile)
    yield block
    return root


def directory(entries: Mapping[str, Root], profile: Profile) -> tuple[Root, Block]:
    """A plain directory of imported files. The order of `entries` does not matter.

    It does not shard, as Kubo does above 256 KiB (thousands of entries). Raises `ValueError` for a directory that is
    too large for a block.
    """
    links = [Link(root.parts, root.tsize, name.encode()) for name, root in entries.items()]
    links.sort(key=lambda link: link.name)
    block = block_of(encode_node(links, b"\x08\x01"))
    if len(block.data) > BLOCK_SIZE_MAX:
        raise ValueError("the directory has too many entries for one block")
    tsize = len(block.data) + sum(link.tsize for link in links)
    size = sum(root.size for root in entries.values())
    return Root(_dag_pb(block, profile), tsize, size, dict(entries)), block


def encode_file_data(data: bytes, size: int, child_sizes: Iterable[int] = ()) -> bytes:
    """The UnixFS message of a file node: it has the size even if that is 0, the data only if there is any."""
    parts = [b"\x08\x02"]
    if data:
        parts += (b"\x12", encode_varint(len(data)), data)
    parts += (b"\x18", encode_varint(size))
    for child_size in child_sizes:
        parts += (b"\x20", encode_varint(child_size))
    return b"".join(parts)


def decode_unixfs(message: bytes | None) -> UnixFsData:
    """Read the message of a plain file or directory strictly; raises `Integrity` for anything else.

    Mode, time, symbolic links and sharded directories are refused: this registry never writes them.
    """
    try:
        unixfs = _decode_unixfs(message or b"")
    except ValueError as error:
        raise Integrity(f"a stored node is not a plain UnixFS file or directory: {error}") from error
    if unixfs.size != len(unixfs.data) + sum(unixfs.child_sizes):
        raise Integrity("a stored UnixFS node contradicts its own size")
    return unixfs


def _decode_unixfs(message: bytes) -> UnixFsData:
    kind: Kind | None = None
    data, size = b"", 0
    child_sizes: list[int] = []
    last = 0
    for tag, value in decode_fields(message):
        if tag < last or (tag == last and tag not in _REPEATED):
            raise ValueError("fields are repeated or out of order")
        last = tag
        match tag, value:
            case 0x08, int():
                kind = Kind(value)
            case 0x12, bytes():
                data = value
            case 0x18, int():
                size = value
            case 0x20, int():
                child_sizes.append(value)
            case _:
                raise ValueError(f"there is no field with the tag {tag:#x}")
    if kind is None:
        raise ValueError("it has no type")
    return UnixFsData(kind, data, size, tuple(child_sizes))


def _chunks(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The bytes of `pieces` in chunks of exactly `size`, the last one possibly shorter; no chunk for no bytes."""
    pending = bytearray()
    for piece in pieces:
        rest = memoryview(piece)
        if pending:
            missing = size - len(pending)
            pending += rest[:missing]
            rest = rest[missing:]
            if len(pending) < size:
                continue
            yield bytes(pending)
            pending.clear()
        while len(rest) >= size:
            yield bytes(rest[:size])
            rest = rest[size:]
        pending += rest
    if pending:
        yield bytes(pending)


def _leaf(chunk: bytes, profile: Profile) -> tuple[Root, Block]:
    if profile.raw_leaves:
        block = block_of(chunk)
        parts = CidParts(1, RAW, SHA2_256, block.digest)
    else:
        block = block_of(encode_node((), encode_file_data(chunk, len(chunk))))
        parts = _dag_pb(block, profile)
    return Root(parts, len(block.data), len(chunk)), block


def _parent(children: list[Root], profile: Profile) -> tuple[Root, Block]:
    size = sum(child.size for child in children)
    links = [Link(child.parts, child.tsize) for child in children]
    block = block_of(encode_node(links, encode_file_data(b"", size, [child.size for child in children])))
    tsize = len(block.data) + sum(child.tsize for child in children)
    return Root(_dag_pb(block, profile), tsize, size), block


def _append(levels: list[list[Root]], level: int, child: Root, profile: Profile) -> Iterator[Block]:
    """Add `child` to the open node of `level`; if that is full, close it first, and likewise on the levels above."""
    if level == len(levels):
        levels.append([])
    if len(levels[level]) == profile.width:
        parent, block = _parent(levels[level], profile)
        yield block
        yield from _append(levels, level + 1, parent, profile)
        levels[level] = []
    levels[level].append(child)


def _dag_pb(block: Block, profile: Profile) -> CidParts:
    return CidParts(profile.cid_version, DAG_PB, SHA2_256, block.digest)
