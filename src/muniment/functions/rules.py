"""What makes a bundle acceptable, and which blocks it becomes. Pure: bytes in, values out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muniment.functions.manifest import Manifest, read_manifest
from muniment.functions.wasm import check_wasm
from muniment.ipfs.unixfs import UNIXFS_V0_2015, UNIXFS_V1_2025, Import, import_files

if TYPE_CHECKING:
    from muniment.blocks.disk import Spool
    from muniment.ipfs.cid import Cid
    from muniment.ipfs.unixfs import Profile

MANIFEST: Final = "manifest.json"
WASM: Final = "function.wasm"


@dataclass(frozen=True, slots=True)
class Bundle:
    """An uploaded bundle, whose module is yet to be checked. `content` names its bytes, whatever CID they get."""

    manifest: Manifest
    manifest_bytes: bytes
    wasm: Spool
    content: bytes

    def check_module(self) -> None:
        """Raise `InvalidWasm` unless it is acceptable. It is in memory twice meanwhile, and may take seconds."""
        check_wasm(self.wasm.whole())

    def blocks(self, profile: Profile) -> Import:
        """The blocks of the UnixFS directory of both files; the root is there when all were taken."""
        return Import(import_files({MANIFEST: [self.manifest_bytes], WASM: self.wasm.pieces()}, profile))


def read_bundle(manifest_bytes: bytes, wasm: Spool) -> Bundle:
    """The bundle of both files. Raises `InvalidManifest`; the module is not looked at."""
    manifest = read_manifest(manifest_bytes)
    parts = hashlib.sha256(manifest_bytes).digest() + wasm.sha256()
    return Bundle(manifest, manifest_bytes, wasm, hashlib.sha256(parts).digest())


def profile_of(cid: Cid) -> Profile:
    """The profile that a bundle of ours was made with: the two that there are differ in CID version."""
    return UNIXFS_V0_2015 if cid.version == 0 else UNIXFS_V1_2025
