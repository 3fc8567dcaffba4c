"""What makes a bundle acceptable, and which blocks it becomes. Pure: bytes in, values out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from muniment.functions.manifest import Manifest, read_manifest
from muniment.functions.wasm import check_wasm
from muniment.ipfs.unixfs import UNIXFS_V0_2015, UNIXFS_V1_2025, Import, import_files, read_pieces

if TYPE_CHECKING:
    from muniment.ipfs.cid import Cid
    from muniment.ipfs.unixfs import Profile

MANIFEST: Final = "manifest.json"
WASM: Final = "function.wasm"


@dataclass(frozen=True, slots=True)
class Bundle:
    """An uploaded bundle that is acceptable. `content` names its bytes, whatever CID a profile gives them."""

    manifest: Manifest
    manifest_bytes: bytes
    wasm: IO[bytes]
    content: bytes

    def blocks(self, profile: Profile) -> Import:
        """The blocks of the UnixFS directory of both files; the root is there when all were taken."""
        self.wasm.seek(0)
        files = {MANIFEST: [self.manifest_bytes], WASM: read_pieces(self.wasm)}
        return Import(import_files(files, profile))


def read_bundle(manifest_bytes: bytes, wasm: IO[bytes]) -> Bundle:
    """The bundle of both files. Raises `InvalidManifest` and `InvalidWasm`.

    Long for a large module, which is whole in memory meanwhile; run it where few run at once.
    """
    manifest = read_manifest(manifest_bytes)
    wasm.seek(0)
    module = wasm.read()
    check_wasm(module)
    parts = hashlib.sha256(manifest_bytes).digest() + hashlib.sha256(module).digest()
    return Bundle(manifest, manifest_bytes, wasm, hashlib.sha256(parts).digest())


def profile_of(cid: Cid) -> Profile:
    """The profile that a bundle of ours was made with: the two that there are differ in CID version."""
    return UNIXFS_V0_2015 if cid.version == 0 else UNIXFS_V1_2025
