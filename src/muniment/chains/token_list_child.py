"""Parses token lists in a child process, because a list of megabytes would block the event loop for a second.

The child gets only the bytes: no environment, no open files, no import path of the caller. It limits its own memory and
CPU time; the parent limits the total time. If the parent ends, the pipes close and the child ends too.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import msgspec

from muniment.chains.tokens import LIST_BYTES_MAX, Token, parse_token_list
from muniment.wire import decode_text, encode

# For a list of the largest size a child takes about a second and 150 MB; a slow machine may take longer.
SECONDS_MAX: Final = 30.0
_CPU_SECONDS_MAX: Final = 15
_MEMORY_BYTES_MAX: Final = 1024**3
# Tokens that are decoded between two turns of the event loop: some milliseconds, mostly for checksums.
_TOKENS_PER_TURN: Final = 250
_REASON_LENGTH: Final = 300

_decoder: Final = msgspec.json.Decoder(Token, dec_hook=decode_text)


async def read_token_list(data: bytes, chains: Collection[int]) -> list[Token]:
    """The tokens of `parse_token_list` that are on `chains`. Raises `ValueError`."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", __name__, *map(str, sorted(chains)),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={}, cwd="/",
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS_MAX):
            found, reason = await child.communicate(data)
    except TimeoutError:
        raise ValueError(f"reading it took more than {SECONDS_MAX:.0f} s") from None
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    if child.returncode:
        raise ValueError(reason.decode(errors="replace")[:_REASON_LENGTH].strip() or "the process that read it ended")
    tokens: list[Token] = []
    for line in found.splitlines():
        tokens.append(_decoder.decode(line))
        if len(tokens) % _TOKENS_PER_TURN == 0:
            await asyncio.sleep(0)
    return tokens


def main() -> int:
    """The child's program: bytes in, one token per line out, or a reason on standard error."""
    _limit()
    chains = frozenset(map(int, sys.argv[1:]))
    try:
        tokens = parse_token_list(sys.stdin.buffer.read(LIST_BYTES_MAX + 1))
    except (ValueError, MemoryError) as error:
        sys.stderr.write(str(error)[:_REASON_LENGTH] or type(error).__name__)
        return 1
    sys.stdout.buffer.writelines(encode(token) + b"\n" for token in tokens if token.chain_id in chains)
    return 0


def _limit() -> None:
    if sys.platform != "win32":  # Windows has no such limits
        import resource  # noqa: PLC0415 - not there on Windows

        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS_MAX, _CPU_SECONDS_MAX))
        with suppress(ValueError):  # some systems do not limit address space
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))


if __name__ == "__main__":
    sys.exit(main())
