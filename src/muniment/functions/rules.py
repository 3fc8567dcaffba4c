"""The rules for a bundle, and its blocks. Pure: bytes in, values out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from muniment.functions.manifest import Manifest, read_manifest
from muniment.functions.wasm import check_wasm
from muniment.ipfs.unixfs import UNIXFS_V0_2015, UNIXFS_V1_2025, Import, import_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muniment.ipfs.cid import Cid
    from muniment.ipfs.unixfs import Profile

MANIFEST: Final = "manifest.json"
WASM: Final = "function.wasm"


class Content(Protocol):
    """The bytes of an uploaded file, which may be on disk."""

    @property
    def is_on_disk(self) -> bool:
        """Whether the bytes are too many for memory."""
        ...

    def whole(self) -> bytes | bytearray:
        """All bytes."""
        ...

    def pieces(self) -> Iterator[bytes]:
        """The bytes in order, piece by piece."""
        ...

    def sha256(self) -> bytes:
        """The SHA-256 digest of the bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Bundle:
    """An uploaded bundle, its module not checked yet. `content` identifies its bytes, independent of the CID."""

    manifest: Manifest
    manifest_bytes: bytes
    wasm: Content
    content: bytes

    def check_module(self) -> None:
        """Raise `InvalidWasm` unless the module is acceptable. Takes up to seconds, and memory for two copies."""
        check_wasm(self.wasm.whole())

    def blocks(self, profile: Profile) -> Import:
        """The blocks of the UnixFS directory of both files; the root is known after the last block."""
        return Import(import_files({MANIFEST: [self.manifest_bytes], WASM: self.wasm.pieces()}, profile))


def read_bundle(manifest_bytes: bytes, wasm: Content) -> Bundle:
    """The bundle of both files. Raises `InvalidManifest`; the module is not checked."""
    manifest = read_manifest(manifest_bytes)
    parts = hashlib.sha256(manifest_bytes).digest() + wasm.sha256()
    return Bundle(manifest, manifest_bytes, wasm, hashlib.sha256(parts).digest())


def profile_of(cid: Cid) -> Profile:
    """The profile that gave a bundle of this registry its CID: the two profiles differ in the CID version."""
    return UNIXFS_V0_2015 if cid.version == 0 else UNIXFS_V1_2025
