"""The CPU of POST /functions beside the least that an upload needs, and the memory of many at once. Runs alone.

Bundles of 120 KB, all different, over 8 connections: the module of `muniment demo`'s function, filled up by a custom
section. The least is the same bytes hashed once by SHA-256, written as the same three files with the same fsyncs, and
the module validated by wasmtime. Both sides take turns, on the same disk; `TMPDIR` chooses another one.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx2
from wasmtime import Engine, Module

from muniment import cli
from samples import manifest
from server import Server, api_key, deploy, muniment, post

UPLOAD, HASH, FILES, VALIDATION = "POST /functions", "bare SHA-256", "bare files with fsync", "bare validation"
LEAST: Final = "an upload of 120 KB / (SHA-256 + files with fsync + validation)"
MEMORY: Final = "resident memory of 64 concurrent uploads of 4 MiB / their bytes"
_BYTES: Final = 120_000
_CONNECTIONS: Final = 8
_ROUNDS: Final = 9
_UPLOADS: Final = 150
_MANY, _LARGE_BYTES = 64, 4 * 2**20
_BOUNDARY: Final = "0123456789abcdef0123456789abcdef"
_MODULE: Final = (Path(cli.__file__).parent / "sample" / "function.wasm").read_bytes()
# The bytes of the block of a directory of two files.
_DIRECTORY_BYTES: Final = 130
_random: Final = random.Random(0)
Micros = dict[str, list[float]]


def measure() -> tuple[Micros, float]:
    """CPU microseconds of one of each, by round; and the growth of resident memory for each byte of `_MANY`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        muniment(Path(folder) / "registry", has_log=False) as service,
        httpx2.Client(base_url=service.url) as client,
    ):
        deploy(client)  # loads the validator
        key, disk = api_key(client), Path(folder) / "bare"
        found: Micros = {name: [] for name in (UPLOAD, HASH, FILES, VALIDATION)}
        for turn in range(_ROUNDS + 1):
            bundles = [(_manifest(), _module(_BYTES)) for _ in range(_UPLOADS)]
            load = service.load([_request(*each, key) for each in bundles], _CONNECTIONS)
            micros = {UPLOAD: 1e6 / load.per_cpu_second} | _bare(bundles, disk)
            if turn:  # the first round warms up
                for name, each in micros.items():
                    found[name].append(each)
        return found, _growth(service, key)


def least(found: Micros) -> list[float]:
    """The ratio of each round."""
    bare = zip(found[HASH], found[FILES], found[VALIDATION], strict=True)
    return [ours / sum(parts) for ours, parts in zip(found[UPLOAD], bare, strict=True)]


def _growth(service: Server, key: str) -> float:
    uploads = [_request(_manifest(), _module(_LARGE_BYTES), key) for _ in range(_MANY)]
    Path(f"/proc/{service.pid}/clear_refs").write_text("5", "ascii")  # the peak begins anew: proc(5)
    before = _memory(service, "VmRSS")
    service.load(uploads, _MANY)
    return (_memory(service, "VmHWM") - before) / sum(map(len, uploads))


def _memory(service: Server, name: str) -> int:
    """A number of bytes in the status of the process."""
    status = Path(f"/proc/{service.pid}/status").read_text("ascii")
    return 1024 * int(status.partition(f"{name}:")[2].split()[0])


def _bare(bundles: list[tuple[bytes, bytes]], disk: Path) -> dict[str, float]:
    for number in range(256):
        (disk / f"{number:02x}").mkdir(parents=True, exist_ok=True)
    directory = bytes(_DIRECTORY_BYTES)
    with Engine() as engine:
        return {
            HASH: _micros(lambda one: [hashlib.sha256(each).digest() for each in one], bundles),
            FILES: _micros(lambda one: _write((*one, directory), disk), bundles),
            VALIDATION: _micros(lambda one: Module.validate(engine, one[1]), bundles),
        }


def _write(files: tuple[bytes, ...], disk: Path) -> None:
    """Write files without names, link them, and flush their directories, as `muniment.service.blocks.files` does."""
    directories = [disk / f"{_random.randrange(256):02x}" for _ in files]
    for directory, content in zip(directories, files, strict=True):
        file = os.open(directory, os.O_WRONLY | os.O_TMPFILE)
        os.write(file, content)
        os.fsync(file)
        os.link(f"/proc/self/fd/{file}", directory / _random.randbytes(31).hex(), src_dir_fd=file)
        os.close(file)
    for directory in directories:
        opened = os.open(directory, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)


def _micros(work: Callable[[tuple[bytes, bytes]], object], bundles: list[tuple[bytes, bytes]]) -> float:
    started = time.process_time_ns()
    for each in bundles:
        work(each)
    return (time.process_time_ns() - started) / 1_000 / len(bundles)


def _manifest() -> bytes:
    return json.dumps({**manifest(), "name": _random.randbytes(8).hex()}).encode()


def _module(size: int) -> bytes:
    """A module of about this size, and unlike any other."""
    content = b"\4fill" + _random.randbytes(size - len(_MODULE))
    # A custom section, its length as a LEB128 of four bytes (core specification 5.5.3).
    length = bytes(len(content) >> shift & 0x7F | (0x80 if shift < 21 else 0) for shift in (0, 7, 14, 21))
    return _MODULE + b"\0" + length + content


def _request(manifest: bytes, module: bytes, key: str) -> bytes:
    parts = b"".join(
        f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
        + content
        + b"\r\n"
        for name, content in (("manifest.json", manifest), ("function.wasm", module))
    )
    body = parts + f"--{_BOUNDARY}--\r\n".encode()
    return post("/functions", body, f"multipart/form-data; boundary={_BOUNDARY}", f"x-api-key: {key}\r\n")


def main() -> None:
    found, growth = measure()
    print("\nAn upload of 120 KB, CPU microseconds")
    for name, micros in found.items():
        print(f"{name:44}{statistics.median(micros):9.0f}  ({min(micros):.0f} … {max(micros):.0f})")
    print(f"{'uploads per second of CPU':44}{1e6 / statistics.median(found[UPLOAD]):9.0f}")
    ratios = least(found)
    print(f"{LEAST:80}{statistics.median(ratios):6.2f}  ({min(ratios):.2f} … {max(ratios):.2f})")
    print(f"{MEMORY:80}{growth:6.2f}")


if __name__ == "__main__":
    main()
