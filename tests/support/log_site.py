"""A log served from memory that lies where a test wants it. Its tree is computed from its entries."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx2
import msgspec

from muniment.client import Registry, Retry
from muniment.protocol.log.checkpoints import Checkpoint, Proof
from muniment.protocol.log.entries import NO_EPOCH, BackfilledFact, LogFact, TriggerFact, previous_epoch
from muniment.protocol.log.notes import Note, SigningKey, keys_of_log, sign_note
from muniment.protocol.log.tiles import ENTRIES, WIDTH, join_entries, parse_path, width_at
from muniment.protocol.log.tree import complete_hash, hashes_of, inclusion_ranges, leaf_hash, root_hash
from muniment.protocol.log.types import LogEpoch, LogShown
from muniment.protocol.wire import encode, iso_time

NOW_S = 1_795_204_080
SECRET = b"\x11" * 32


def trigger_fact(n: int, at_s: int = NOW_S) -> TriggerFact:
    """The fact of a trigger whose signature has the number `n`."""
    sig = "0x" + n.to_bytes(32).hex() * 2 + "1b"
    cid = "QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4"
    signer, hashed = "0x5e5E5e5e5E5e5E5E5e5E5E5e5e5E5E5E5e5E5E5e", "0x" + "ab" * 32
    digest = "0x" + n.to_bytes(32).hex()
    return TriggerFact(sig, signer, digest, cid, iso_time(at_s * 1000), hashed, "Mimic Protocol - Registry")


@dataclass
class SiteEpoch:
    """An epoch: its entries, all of them signed at `at_s`."""

    number: int = 1
    entries: list[bytes] = field(default_factory=list[bytes])
    at_s: int = NOW_S
    secret: bytes = SECRET
    more_keys: list[SigningKey] = field(default_factory=list[SigningKey])
    is_timed: bool = True
    is_signed: bool = True
    name: str = "site.example"

    @property
    def keys(self) -> tuple[SigningKey, SigningKey]:
        return keys_of_log(f"{self.name}/log/{self.number}", self.secret)

    def root(self, size: int) -> bytes:
        leaves = [leaf_hash(each) for each in self.entries[:size]]
        return root_hash(size, lambda node: complete_hash(leaves[node.n << node.level : (node.n + 1) << node.level]))

    def note(self, size: int | None = None) -> Note:
        size = len(self.entries) if size is None else size
        text = Checkpoint(self.keys[0].verifier.name, size, self.root(size)).text
        keys = [*(self.keys if self.is_timed else self.keys[:1]), *self.more_keys]
        return sign_note(text, keys, self.at_s)

    def proof(self, index: int) -> Proof:
        leaves = [leaf_hash(each) for each in self.entries]
        hashes = hashes_of(
            inclusion_ranges(index, len(leaves)),
            lambda node: complete_hash(leaves[node.n << node.level : (node.n + 1) << node.level]),
        )
        return Proof(index, tuple(hashes), self.note(), self.entries[index])

    def part(self, path: str) -> tuple[bytes, bool] | None:
        """A tile or a bundle, and whether it is compressed."""
        tile = parse_path(path)
        if tile.width > width_at(tile.level, tile.n, len(self.entries)):
            return None
        if tile.level == ENTRIES:
            data = join_entries(self.entries[tile.n * WIDTH :][: tile.width])
            return (gzip.compress(data), True) if tile.width == WIDTH else (data, False)
        span = 1 << 8 * tile.level
        hashes = [
            complete_hash([leaf_hash(each) for each in self.entries[at * span : (at + 1) * span]])
            for at in range(tile.n * WIDTH, tile.n * WIDTH + tile.width)
        ]
        return b"".join(hashes), False


def opened_epoch(number: int = 1, reason: str = "new", before: SiteEpoch | None = None) -> SiteEpoch:
    """An epoch with its first two entries."""
    epoch = SiteEpoch(number, secret=bytes((number,)) * 32)
    key, time_key = (each.verifier for each in epoch.keys)
    previous = NO_EPOCH
    if before is not None:
        size = len(before.entries) if before.is_signed else 0
        previous = previous_epoch(before.keys[0].verifier.name, size, before.root(size))
    at = iso_time(NOW_S * 1000)
    fact = LogFact(key.name, key.text, previous, reason, at, time_key.text)
    epoch.entries = [fact.data, BackfilledFact(at).data]
    return epoch


class _Content(httpx2.SyncByteStream):
    """Content to read in pieces, as from a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __iter__(self) -> Iterator[bytes]:
        yield self._data


def _answered(content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> httpx2.Response:
    return httpx2.Response(status, headers=headers, stream=_Content(content))


@dataclass
class LogSite:
    """A registry with a log only. `lie` may change the content of any answer; `asked` has all paths."""

    epochs: list[SiteEpoch] = field(default_factory=lambda: [opened_epoch()])
    lie: Callable[[str, bytes], bytes] = lambda _, content: content
    asked: list[str] = field(default_factory=list[str])
    # The index whose proof is given for any record.
    proved: int = 0

    @property
    def newest(self) -> SiteEpoch:
        return self.epochs[-1]

    def grow(self, size: int, at_s: int = NOW_S) -> None:
        """Grow the newest epoch to `size` entries."""
        self.newest.entries += [trigger_fact(n, at_s).data for n in range(len(self.newest.entries), size)]

    def client(self) -> Registry:
        transport = httpx2.MockTransport(self._answer)
        return Registry("http://site", http=httpx2.Client(transport=transport), retry=Retry(tries=1))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        self.asked.append(path)
        if path == "/log":
            return _answered(self.lie(path, encode(LogShown(epochs=self._shown()))))
        if path.endswith("/proof"):
            return _answered(self.lie(path, self.newest.proof(self.proved).data))
        match = re.fullmatch(r"/log/(\d+)/(?:checkpoint|tile/(.*))", path)
        assert match, path
        epoch = next(each for each in self.epochs if each.number == int(match[1]))
        if match[2] is None and epoch.is_signed:
            return _answered(self.lie(path, epoch.note().data))
        part = epoch.part(match[2]) if match[2] is not None else None
        if part is None:
            problem = {"code": "log-part-not-found", "detail": "the signed tree does not have it"}
            return _answered(msgspec.json.encode(problem), 404)
        headers = {"content-encoding": "gzip"} if part[1] else {}
        return _answered(self.lie(path, part[0]), headers=headers)

    def _shown(self) -> list[LogEpoch]:
        return [
            LogEpoch(
                origin=each.keys[0].verifier.name, vkeys=[key.verifier.text for key in each.keys],
                prefix=f"log/{each.number}", state="open" if each is self.newest else "closed", why=None,
                size=len(each.entries), merge_delay_seconds=600,
            )
            for each in reversed(self.epochs)
        ]  # fmt: skip
