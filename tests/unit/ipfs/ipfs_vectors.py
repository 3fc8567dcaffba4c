"""The vectors of tests/vectors/ipfs and tests/vectors/bundles, with their inputs made from their generators."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from muniment.protocol.ipfs.unixfs import Import, Profile, import_files

VECTORS = Path(__file__).parents[2] / "vectors"
INDEX = json.loads((VECTORS / "ipfs" / "index.json").read_bytes())
GOLDENS = json.loads((VECTORS / "ipfs" / "kubo-goldens.json").read_bytes())
CID_TEXTS: list[dict[str, Any]] = json.loads((VECTORS / "ipfs" / "cid-strings.json").read_bytes())["cases"]
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in INDEX["cases"]}
PROFILES: dict[str, Profile] = {
    name: Profile(name, facts["cidVersion"], facts["rawLeaves"], facts["chunkSize"], facts["maxLinks"])
    for name, facts in INDEX["profiles"].items()
}
PIECE = 1 << 20


def input_bytes(generator: dict[str, Any]) -> bytes:
    """The file that a generator of index.json describes."""
    n = generator.get("n", 0)
    match generator["kind"]:
        case "inline":
            return base64.b64decode(generator["base64"])
        case "constant":
            return bytes((generator["value"],)) * n
        case "affine":
            period = bytes((i * generator["a"] + generator["b"]) % 256 for i in range(256))
            return (period * (n // 256 + 1))[:n]
        case "wasm-custom":
            length = bytes(((n - 14) >> 7 * i) & 0x7F | (0x80 if i < 4 else 0) for i in range(5))
            return b"\0asm\x01\0\0\0\0" + length + b"\x03pad" + counter_stream(generator["seed"], n - 18)
        case "wrap":
            prefix, suffix = generator["prefix"].encode(), generator["suffix"].encode()
            return prefix + bytes((generator["fill"],)) * (n - len(prefix) - len(suffix)) + suffix
        case kind:
            raise ValueError(kind)


def counter_stream(seed: str, n: int) -> bytes:
    """SHA-256 in counter mode, cut to n bytes."""
    start = hashlib.sha256(seed.encode())
    pieces: list[bytes] = []
    for counter in range(-(-n // 32)):
        state = start.copy()
        state.update(counter.to_bytes(8, "big"))
        pieces.append(state.digest())
    return b"".join(pieces)[:n]


def chacha20_stream(seed: str, n: int) -> Iterator[bytes]:
    """The ChaCha20 keystream under the SHA-256 of the seed, in pieces."""
    cipher = Cipher(ChaCha20(hashlib.sha256(seed.encode()).digest(), bytes(16)), mode=None).encryptor()
    while n > 0:
        yield cipher.update(bytes(min(n, PIECE)))
        n -= PIECE


def stored(files: dict[str, Iterable[bytes]], profile: Profile) -> tuple[Import, dict[bytes, bytes]]:
    """A finished import, and its distinct blocks."""
    done = Import(import_files(files, profile))
    return done, dict(done)
