"""The entries of the log: the exact bytes whose hashes are the leaves.

An entry is UTF-8 text. Its first line is its kind, and each further line is a value as the API returns it. So the
bytes can be rebuilt from a record of the API, and their hash compared with the leaf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import ClassVar, Final, Literal, Self, TypeAlias, get_args

import msgspec

from muniment.protocol.errors import Invalid
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.evm.signature import Signature
from muniment.protocol.ipfs.cid import Cid
from muniment.protocol.log.fields import base64_of, check_line, hash_of, number_of, time_ms_of
from muniment.protocol.log.notes import parse_verifier_key
from muniment.protocol.log.tiles import ENTRY_BYTES_MAX
from muniment.protocol.wire import ProvedText

# The maximum of triggers in a deactivation (`muniment.protocol.triggers.types`).
_SIGS_MAX: Final = 100
# Four values, and then the signatures.
_DEACTIVATION_LINES: Final = range(5, 4 + _SIGS_MAX + 1)
# `LogFact.previous` of the first epoch.
NO_EPOCH: Final = ("-", "0", "-")
# Why an epoch began: the first one, a new key, or the loss of entries.
Reason = Literal["new", "rotated", "restored"]


class Fact(msgspec.Struct, frozen=True):
    """The base of all entries. The values of an entry are its lines, in their order."""

    kind: ClassVar[str]

    @property
    def lines(self) -> list[str]:
        """The lines after the first."""
        return list(msgspec.structs.astuple(self))

    @classmethod
    def of_lines(cls, lines: list[str]) -> Self:
        """The entry with these lines after the first. Raises `ValueError`."""
        raise NotImplementedError

    @property
    def data(self) -> bytes:
        """The bytes of the entry. Raises `ValueError` for a value with a line break, and for more than 65,535 bytes."""
        lines = [check_line(line, "a line of an entry") for line in self.lines]
        data = "".join(f"{line}\n" for line in (self.kind, *lines)).encode()
        if len(data) > ENTRY_BYTES_MAX:
            raise ValueError(f"an entry has at most {ENTRY_BYTES_MAX} bytes")
        return data


class FunctionFact(Fact, frozen=True):
    """A wallet uploaded a bundle. `creator` is who did it first; `created_at` is the time of that."""

    kind: ClassVar[str] = "muniment/function/v1"

    cid: str
    uploader: str
    creator: str
    created_at: str

    @classmethod
    def of_lines(cls, lines: list[str]) -> Self:
        """As `Fact`."""
        cid, uploader, creator, created_at = _taken(lines, 4)
        return cls(_cid(cid), _address(uploader), _address(creator), _time(created_at))


class TriggerFact(Fact, frozen=True):
    """A trigger was registered.

    `digest` is the EIP-712 digest that was signed, under a domain with the name `domain`; `description_hash` is the
    SHA-256 of the description, both as `0x` and hex.
    """

    kind: ClassVar[str] = "muniment/trigger/v1"

    sig: str
    signer: str
    digest: str
    function_cid: str
    created_at: str
    description_hash: str
    domain: str

    @classmethod
    def of_lines(cls, lines: list[str]) -> Self:
        """As `Fact`."""
        sig, signer, digest, function_cid, created_at, description_hash, domain = _taken(lines, 7)
        return cls(
            _signature(sig), _address(signer), _bytes32(digest), _cid(function_cid), _time(created_at),
            _bytes32(description_hash), check_line(domain, "the domain"),
        )  # fmt: skip


class DeactivationFact(Fact, frozen=True):
    """Triggers were deactivated. `trigger_sigs` stand in the order that was signed."""

    kind: ClassVar[str] = "muniment/deactivation/v1"

    signature: str
    signer: str
    created_at: str
    domain: str
    trigger_sigs: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """As `Fact`."""
        return [self.signature, self.signer, self.created_at, self.domain, *self.trigger_sigs]

    @classmethod
    def of_lines(cls, lines: list[str]) -> Self:
        """As `Fact`."""
        if len(lines) not in _DEACTIVATION_LINES:
            raise ValueError(f"a deactivation names 1 to {_SIGS_MAX} triggers")
        signature, signer, created_at, domain, *sigs = lines
        return cls(
            _signature(signature), _address(signer), _time(created_at), check_line(domain, "the domain"),
            tuple(map(_signature, sigs)),
        )  # fmt: skip


class LogFact(Fact, frozen=True):
    """The first entry of an epoch: its origin and keys, and the last signed tree of the previous epoch.

    `key` signs the tree, `time_key` its time: a follower that trusts `key` learns `time_key` here. `previous` is the
    origin, the size and the root (base64) of the previous epoch; `-`, `0` and `-` in the first one.
    """

    kind: ClassVar[str] = "muniment/log/v1"

    origin: str
    key: str
    previous: tuple[str, str, str]
    reason: str
    at: str
    time_key: str

    @property
    def lines(self) -> list[str]:
        """As `Fact`."""
        return [self.origin, self.key, *self.previous, self.reason, self.at, self.time_key]

    @classmethod
    def of_lines(cls, lines: list[str]) -> Self:
        """As `Fact`."""
        origin, key, before, size, root, reason, at, time_key = _taken(lines, 8)
        if (before, size, root) != NO_EPOCH:
            check_line(before, "the origin of the epoch before")
            number_of(size, "the size of the epoch before")
            hash_of(root, "the root of the epoch before")
        if {parse_verifier_key(each).name for each in (key, time_key)} != {origin}:
            raise ValueError("a key of the log has another name than its origin")
        if reason not in get_args(Reason):
            raise ValueError("an epoch is new, rotated or restored")
        return cls(origin, key, (before, size, root), reason, _time(at), time_key)


class BackfilledFact(Fact, frozen=True):
    """The facts before this entry are older than the log, which backfilled them at the time `at`."""

    kind: ClassVar[str] = "muniment/taken-over/v1"

    at: str

    @classmethod
    def of_lines(cls, lines: list[str]) -> Self:
        """As `Fact`."""
        (at,) = _taken(lines, 1)
        return cls(_time(at))


class CloseFact(Fact, frozen=True):
    """The last entry of an epoch, when its key is replaced: the key of the next epoch."""

    kind: ClassVar[str] = "muniment/close/v1"

    next_key: str

    @classmethod
    def of_lines(cls, lines: list[str]) -> Self:
        """As `Fact`."""
        (next_key,) = _taken(lines, 1)
        return cls(parse_verifier_key(next_key).text)


Entry: TypeAlias = FunctionFact | TriggerFact | DeactivationFact | LogFact | BackfilledFact | CloseFact
_KINDS: Final[dict[str, Callable[[list[str]], Entry]]] = {
    kind.kind: kind.of_lines
    for kind in (FunctionFact, TriggerFact, DeactivationFact, LogFact, BackfilledFact, CloseFact)
}


def description_hash(description: str) -> str:
    """The hash of a description as it stands in the entry of a trigger."""
    return "0x" + hashlib.sha256(description.encode()).hexdigest()


def previous_epoch(origin: str, size: int, root: bytes) -> tuple[str, str, str]:
    """The value of `LogFact.previous` for an epoch with this last signed size and root."""
    return (origin, str(size), base64_of(root))


def parse_entry(data: bytes) -> Entry | None:
    """The entry with these bytes; None for an unknown kind, which is not an error.

    Raises `ValueError` for an entry of a known kind that is malformed, or not in the one spelling of its values.
    """
    if len(data) > ENTRY_BYTES_MAX:
        raise ValueError(f"an entry has at most {ENTRY_BYTES_MAX} bytes")
    kind, _, rest = data.partition(b"\n")
    read = _KINDS.get(kind.decode("ascii", "replace"))
    if read is None:
        return None
    try:
        lines = rest.decode().split("\n")
    except UnicodeDecodeError:
        raise ValueError("an entry is UTF-8") from None
    if lines.pop():
        raise ValueError("every line of an entry ends in a newline")
    return read(lines)


def _taken(lines: list[str], count: int) -> list[str]:
    if len(lines) != count:
        raise ValueError(f"an entry of this kind has {count} lines after the first")
    return lines


def _canonical(kind: type[ProvedText], text: str) -> str:
    """`text` if it is the canonical spelling of a value. Raises `ValueError`."""
    try:
        parsed = kind.parse(text)
    except Invalid as error:
        raise ValueError(error.detail) from None
    if parsed != text:
        raise ValueError("a value of an entry is not in its canonical spelling")
    return text


def _cid(text: str) -> str:
    return _canonical(Cid, text)


def _address(text: str) -> str:
    return _canonical(Address, text)


def _signature(text: str) -> str:
    return _canonical(Signature, text)


def _bytes32(text: str) -> str:
    return _canonical(Bytes32, text)


def _time(text: str) -> str:
    time_ms_of(text, "a time of an entry")
    return text
