"""The sample functions of `tests/e2e/functions`, as their compiled files are kept in `tests/vectors/guest`.

Run as a program, it compiles them again and replaces the kept files; it needs Node.js.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from builders import Bundle

Generation = Literal["B", "C"]

SOURCES: Final = Path(__file__).parents[1] / "e2e" / "functions"
# The function that `muniment demo` deploys, and whose source is an example of the documentation.
SHIPPED: Final = Path(__file__).parents[2] / "src" / "muniment" / "cli" / "sample" / "function.wasm"
_KEPT: Final = Path(__file__).parents[1] / "vectors" / "guest"
# Only ends a compiler that hangs.
_SECONDS_MAX: Final = 900
_FEW: Final = 5
# What the compiled file says of itself, as the tools of the field write it.
_RUNNER_TARGETS: Final[dict[Generation, str]] = {"B": "0.0.1", "C": "0.1.0"}
_SECTION: Final = "mimic-metadata"

_TRANSFER: Final = {
    "chainId": "uint32", "token": "address", "amount": "uint256", "recipient": "address", "fee": "uint256",
}  # fmt: skip
# The inputs of each function, by the name of its source. The first ones are of both generations.
INPUTS: Final[Mapping[str, Mapping[str, str]]] = {
    "nothing": {},
    "transfer": _TRANSFER,
    "call": {
        "chainId": "uint32", "target": "address", "data": "bytes", "value": "uint256", "feeToken": "address",
        "fee": "uint256",
    },
    "swap": {
        "chainId": "uint32", "tokenIn": "address", "amountIn": "uint256", "tokenOut": "address",
        "minAmountOut": "uint256", "fee": "uint256",
    },
    "price": {**_TRANSFER, "below": "uint256"},
    "balance": {**_TRANSFER, "above": "uint256"},
    "event": {"feeToken": "address", "fee": "uint256"},
    "once": {"chainId": "uint32", "token": "address", "recipient": "address", "fee": "uint256"},
    "late_abort": _TRANSFER,
    "many_logs": {},
    "many_intents": {},
    # Hostile ones, of generation B only.
    "endless": {},
    "endless_start": {},
    "much_memory": {},
    "million_logs": {},
    "long_text": {},
    "unknown_import": {},
}  # fmt: skip
HOSTILE: Final = frozenset({
    "endless", "endless_start", "much_memory", "million_logs", "long_text", "unknown_import",
})  # fmt: skip
GENERATIONS: Final[tuple[Generation, ...]] = ("B", "C")
# What there is a compiled file of.
KEPT: Final[list[tuple[str, Generation]]] = [
    (name, each) for name in INPUTS for each in GENERATIONS if each == "B" or name not in HOSTILE
]


def kept(name: str, generation: Generation = "B") -> bytes:
    """The compiled function that is kept."""
    return _file(name, generation).read_bytes()


def bundle(name: str, generation: Generation = "B", *, version: str = "1.0.0") -> Bundle:
    """The function with a manifest that names its inputs."""
    wasm = kept(name, generation)
    return Bundle(name=f"{name} {generation}", version=version, inputs={**INPUTS[name]}, wasm=wasm)


def compiled(folder: Path, samples: Sequence[tuple[str, Generation]]) -> dict[Path, bytes]:
    """The function that is shipped and `samples` as the compiler makes them now, by the path of the file that is kept.

    `folder` is for the compiler's files.
    """
    numbers: dict[Generation, int] = {generation: 1 + at for at, generation in enumerate(GENERATIONS)}
    paths = [f"./{name}:{numbers[generation]}" for name, generation in samples]
    shipped = SHIPPED.with_name("function")
    # For a few functions, optimizing the compiler itself takes longer than running it as it is.
    options = ["--liftoff-only"] if len(samples) < _FEW else []
    command = [shutil.which("node") or "node", *options, "compile.mjs", str(folder), *paths, str(shipped)]
    done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    made = {
        _file(name, generation): (folder / f"{name}.{numbers[generation]}.wasm").read_bytes()
        + metadata_section({"runnerTarget": _RUNNER_TARGETS[generation]})
        for name, generation in samples
    }
    return {**made, SHIPPED: (folder / SHIPPED.name).read_bytes()}


def metadata_section(members: Mapping[str, str]) -> bytes:
    """The custom section with the metadata (WebAssembly core specification 2.0, section 5.5.3)."""
    content = _sized(_SECTION.encode()) + json.dumps(members, separators=(",", ":")).encode()
    return b"\0" + _sized(content)


def _sized(data: bytes) -> bytes:
    assert len(data) < 0x80, "a length of one byte of LEB128"
    return bytes([len(data)]) + data


def _file(name: str, generation: Generation) -> Path:
    return _KEPT / f"{name}.{generation.lower()}.wasm"


def main(folder: Path) -> None:
    """Replace the kept files."""
    _KEPT.mkdir(exist_ok=True)
    for path, wasm in compiled(folder, KEPT).items():
        path.write_bytes(wasm)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
