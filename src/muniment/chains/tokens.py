"""Token lists: ERC-20 tokens in the Uniswap format.

The format is `tokenlist.schema.json` of https://github.com/Uniswap/token-lists. Members that it does not name are
ignored. Tokens are known by chain and address, never by symbol: two tokens of one chain may share a symbol.

A list of megabytes would block the event loop for a second, so a child process parses it. The child gets only the
bytes: no environment, no open files, no import path of the caller. It limits its own memory and CPU time; the parent
limits the total time. If the parent ends, the pipes close and the child ends too.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import re
import sys
import unicodedata
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Meta

from muniment.protocol.errors import InvalidAddress
from muniment.protocol.evm.address import Address
from muniment.protocol.json_text import parse_json
from muniment.protocol.wire import decode_text, encode, refusal_of

# The list that comes with the package: the tokens most in use on the chains of `chains.catalogue`.
PACKAGED_LIST: Final = Path(__file__).with_name("tokens.json")
# The largest list in common use has about 10,000 tokens and 3 MB.
LIST_BYTES_MAX: Final = 4 * 1024 * 1024
# tokenlist.schema.json: maxItems of `tokens`, maxLength of `name` and `symbol`, maximum of `decimals`.
TOKENS_MAX: Final = 10_000
NAME_LENGTH_MAX: Final = 60
SYMBOL_LENGTH_MAX: Final = 20
DECIMALS_MAX: Final = 255
# EIP-2294: the largest chain id that all tools can sign for.
CHAIN_ID_MAX: Final = 2**63 - 37
# An answer carries a logo per token; a longer one is replaced by the default.
LOGO_LENGTH_MAX: Final = 2048

# RFC 3339 section 5.6, `date-time`. Python 3.14 would read an hour 24, earlier ones would not.
_DATE_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)
# Addresses outside the EVM that tokenlist.schema.json allows (Solana): base58 of 32 bytes.
_BASE58: Final = re.compile(r"[1-9A-HJ-NP-Za-km-z]{32,44}")
# RFC 3986 section 2: a URI has only these characters.
_LOGO: Final = re.compile(r"(https?://|ipfs://|data:image/)[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
# For a list of the largest size a child takes about a second and 150 MB; a slow machine may take longer.
SECONDS_MAX: Final = 30.0
_CPU_SECONDS_MAX: Final = 15
_MEMORY_BYTES_MAX: Final = 1024**3
# Tokens that are decoded without a pause: some milliseconds, mostly for checksums.
_TOKENS_PER_STEP: Final = 250
_REASON_LENGTH: Final = 300
# Control and format characters (bidi controls among them), line and paragraph separators; `<` and `>` begin mark-up.
_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_REFUSED: Final = frozenset("<>")


@dataclass(frozen=True, slots=True)
class Token:
    """An ERC-20 token as a list describes it; `logo` is a URI and never empty."""

    chain_id: int
    address: Address
    symbol: str
    name: str
    decimals: int
    logo: str


_decoder: Final = msgspec.json.Decoder(Token, dec_hook=decode_text)


class _Version(msgspec.Struct, frozen=True):
    major: Annotated[int, Meta(ge=0)]
    minor: Annotated[int, Meta(ge=0)]
    patch: Annotated[int, Meta(ge=0)]


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    chain_id: Annotated[int, Meta(ge=1, le=CHAIN_ID_MAX)]
    address: str
    decimals: Annotated[int, Meta(ge=0, le=DECIMALS_MAX)]
    name: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]
    symbol: Annotated[str, Meta(max_length=SYMBOL_LENGTH_MAX)]
    logo: str | None = msgspec.field(name="logoURI", default=None)


class _TokenList(msgspec.Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
    timestamp: str
    version: _Version
    tokens: Annotated[list[_Entry], Meta(min_length=1, max_length=TOKENS_MAX)]


def parse_token_list(data: bytes) -> list[Token]:
    """The EVM tokens of a list in their order; of two with the same chain and address the first.

    Tokens of other chains (addresses in base58) and tokens without a symbol are left out. A logo that is not an http,
    https or ipfs URI or an image in `data:` is replaced by `default_logo`.

    Raises `ValueError` that begins with a JSON pointer for every other breach of the format.
    """
    if len(data) > LIST_BYTES_MAX:
        raise ValueError(f"a token list has at most {LIST_BYTES_MAX} bytes")
    value: Any = parse_json(data)
    try:
        found = msgspec.convert(value, _TokenList)
    except msgspec.ValidationError as error:
        refusal = refusal_of(error)
        place = refusal.faults[0].pointer if refusal.faults else ""
        raise ValueError(f"{place}: {refusal.detail}" if place else refusal.detail) from error
    _check_text(found.name, "/name")
    _check_time(found.timestamp)
    tokens: dict[tuple[int, Address], Token] = {}
    for number, entry in enumerate(found.tokens):
        token = _token(entry, f"/tokens/{number}")
        if token is not None:
            tokens.setdefault((token.chain_id, token.address), token)
    return list(tokens.values())


def _token(entry: _Entry, place: str) -> Token | None:
    """Raises `ValueError`; None for a token that is left out."""
    _check_text(entry.name, f"{place}/name")
    _check_text(entry.symbol, f"{place}/symbol")
    if any(character.isspace() for character in entry.symbol):
        raise ValueError(f"{place}/symbol: a symbol has no white space")
    if _BASE58.fullmatch(entry.address) or not entry.symbol:
        return None
    try:
        address = Address.parse(entry.address)
    except InvalidAddress as error:
        raise ValueError(f"{place}/address: {error}") from error
    logo = entry.logo or ""
    if len(logo) > LOGO_LENGTH_MAX or not _LOGO.fullmatch(logo):
        logo = default_logo(entry.symbol)
    return Token(entry.chain_id, address, entry.symbol, entry.name, entry.decimals, logo)


def _check_text(text: str, place: str) -> None:
    for character in text:
        if character in _REFUSED or unicodedata.category(character) in _REFUSED_CATEGORIES:
            raise ValueError(f"{place}: has the character U+{ord(character):04X}, which is not shown to people")


def _check_time(text: str) -> None:
    try:
        if not _DATE_TIME.fullmatch(text):
            raise ValueError("not a date-time")  # noqa: TRY301 - one message for both faults
        datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("/timestamp: a timestamp is a date-time of RFC 3339") from error


def default_logo(symbol: str) -> str:
    """A disc with the first letters of `symbol`, as a `data:` URI of SVG (RFC 2397); the same for the same symbol."""
    letters = "".join(character for character in symbol if character.isprintable())[:3]
    hue = hashlib.sha256(symbol.encode("utf-8", "replace")).digest()[0] * 360 // 256
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
        f'<circle cx="16" cy="16" r="16" fill="hsl({hue},45%,40%)"/>'
        '<text x="16" y="20" font-family="sans-serif" font-size="11" fill="#fff" text-anchor="middle">'
        f"{html.escape(letters)}</text></svg>"
    )
    return "data:image/svg+xml," + quote(svg, safe="/:=(),' ").replace(" ", "%20")


async def read_token_list(data: bytes, chains: Collection[int]) -> list[Token]:
    """The tokens of `parse_token_list` that are on `chains`, from a child process. Raises `ValueError`."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", "muniment.chains.tokens", *map(str, sorted(chains)),
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
        if len(tokens) % _TOKENS_PER_STEP == 0:
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
