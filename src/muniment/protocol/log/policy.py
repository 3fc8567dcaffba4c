"""Which logs and witnesses are trusted, and how many must have signed a checkpoint (c2sp.org/tlog-policy, a draft)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from muniment.protocol.log.notes import COSIGNATURE, VerifierKey, parse_verifier_key

POLICY_BYTES_MAX: Final = 256 * 1024
# The draft asks for 32 of each at least.
LOGS_MAX: Final = 256
WITNESSES_MAX: Final = 256
GROUPS_MAX: Final = 256
_NONE: Final = "none"
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
# Numbers of words after `log` and `witness`: the URL is optional.
_LOG_WORDS: Final = (1, 2)
_WITNESS_WORDS: Final = (2, 3)
# A name, a threshold and a member.
_GROUP_WORDS_MIN: Final = 3
# A threshold is at most WITNESSES_MAX + GROUPS_MAX.
_DIGITS_MAX: Final = 4


class Party(NamedTuple):
    """A log or a witness: its key, and its URL where the policy has one."""

    key: VerifierKey
    url: str | None


class Group(NamedTuple):
    """A group of witnesses and other groups: at least `threshold` of its members must have signed."""

    threshold: int
    members: tuple[str, ...]


class Policy(msgspec.Struct, frozen=True):
    """The content of a policy file. `quorum` names a witness, a group, or `none`.

    Groups stand in their order: a group has members before it only.
    """

    logs: tuple[Party, ...]
    witnesses: Mapping[str, Party]
    groups: Mapping[str, Group]
    quorum: str

    def is_met(self, signed: Collection[VerifierKey]) -> bool:
        """Whether the witnesses with these keys, whose signatures were verified, are enough."""
        reached = {_NONE} | {name for name, party in self.witnesses.items() if party.key in signed}
        for name, group in self.groups.items():
            if sum(member in reached for member in group.members) >= group.threshold:
                reached.add(name)
        return self.quorum in reached


def parse_policy(data: bytes) -> Policy:
    """The policy in a file. Raises `ValueError` that names the line."""
    if len(data) > POLICY_BYTES_MAX:
        raise ValueError(f"a policy file has at most {POLICY_BYTES_MAX} bytes")
    reading = _Reading()
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            reading.read(line)
        except ValueError as error:
            raise ValueError(f"line {number} of the policy: {error}") from None
    if reading.quorum is None:
        raise ValueError("the policy has no line that begins with quorum")
    return Policy(tuple(reading.logs), reading.witnesses, reading.groups, reading.quorum)


class _Reading:
    """A policy file while its lines are read."""

    def __init__(self) -> None:
        self.logs = list[Party]()
        self.witnesses = dict[str, Party]()
        self.groups = dict[str, Group]()
        self.quorum: str | None = None
        self._log_keys = set[bytes]()
        self._witness_keys = set[bytes]()
        self._members = set[str]()

    def read(self, line: bytes) -> None:
        if _CONTROL.search(line):
            raise ValueError("the only control characters are tab and newline")
        # Letters beyond ASCII are opaque (section "Character set").
        words = line.decode("utf-8", "surrogateescape").replace("\t", " ").split(" ")
        keyword, *rest = [word for word in words if word] or ["#"]
        if keyword.startswith("#"):
            return
        if keyword not in _READERS:
            raise ValueError("a line begins with log, witness, group or quorum")
        _READERS[keyword](self, rest)

    def log(self, words: list[str]) -> None:
        if len(words) not in _LOG_WORDS:
            raise ValueError("a log is: log VKEY [URL]")
        key = parse_verifier_key(words[0])
        _add_key(key, self._log_keys, LOGS_MAX)
        self.logs.append(Party(key, words[1] if len(words) > 1 else None))

    def witness(self, words: list[str]) -> None:
        if len(words) not in _WITNESS_WORDS:
            raise ValueError("a witness is: witness NAME VKEY [URL]")
        name, key, *urls = self._new(words[0]), parse_verifier_key(words[1]), *words[2:]
        if key.kind != COSIGNATURE:
            raise ValueError("a witness has a key for timestamped Ed25519 signatures (type 4)")
        _add_key(key, self._witness_keys, WITNESSES_MAX)
        self.witnesses[name] = Party(key, next(iter(urls), None))

    def group(self, words: list[str]) -> None:
        if len(words) < _GROUP_WORDS_MIN:
            raise ValueError("a group is: group NAME all|any|NUMBER MEMBER…")
        name, count, *members = words
        self._new(name)
        if len(self.groups) == GROUPS_MAX:
            raise ValueError(f"a policy has at most {GROUPS_MAX} groups")
        for member in members:
            if member not in self.witnesses and member not in self.groups:
                raise ValueError("a member of a group is a witness or a group of an earlier line")
            if member in self._members:
                raise ValueError("a witness or a group is a member once")
            self._members.add(member)
        self.groups[name] = Group(_threshold(count, len(members)), tuple(members))

    def choose(self, words: list[str]) -> None:
        if len(words) != 1:
            raise ValueError("the quorum is: quorum NAME")
        if self.quorum is not None:
            raise ValueError("a policy has one quorum")
        if words[0] != _NONE and words[0] not in self.witnesses and words[0] not in self.groups:
            raise ValueError("the quorum is `none`, or a witness or a group of an earlier line")
        self.quorum = words[0]

    def _new(self, name: str) -> str:
        if name == _NONE or name in self.witnesses or name in self.groups:
            raise ValueError("the name is `none`, or an earlier line has it")
        return name


_READERS: Final[Mapping[str, Callable[[_Reading, list[str]], None]]] = {
    "log": _Reading.log, "witness": _Reading.witness, "group": _Reading.group, "quorum": _Reading.choose,
}  # fmt: skip


def _add_key(key: VerifierKey, keys: set[bytes], most: int) -> None:
    if key.public_key in keys:
        raise ValueError("an earlier line has this key")
    if len(keys) == most:
        raise ValueError(f"a policy has at most {most} logs and as many witnesses")
    keys.add(key.public_key)


def _threshold(count: str, members: int) -> int:
    if count in {"all", "any"}:
        return members if count == "all" else 1
    if not (count.isascii() and count.isdigit() and len(count) <= _DIGITS_MAX) or not 1 <= int(count) <= members:
        raise ValueError(f"the number of a group is all, any, or from 1 to {members}, its members")
    return int(count)
