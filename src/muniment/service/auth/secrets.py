"""The ring of secrets, newest first, and the keys that HKDF-SHA256 (RFC 5869) derives from each.

One secret gives a key for each use, with its own label, so that a value made for one use is invalid for another.
Values made under an older secret stay valid while that secret is in the ring.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets as chance
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

import structlog
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from muniment import durable
from muniment.service.running.settings import SettingError

SECRET_BYTES: Final = 32
# A bound on the derived keys in memory; few rotations are in use at the same time.
RING_SIZE_MAX: Final = 8
_SECRET: Final = re.compile(r"[0-9a-fA-F]{64}")
RING_FILE: Final = "secrets"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret's id, which tokens and API keys carry, and its keys."""

    id: str
    nonce_key: bytes = field(repr=False)
    api_key_key: bytes = field(repr=False)
    signing_key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def derived_from(cls, raw: bytes) -> Secret:
        """The id and the keys that are derived from the 32 bytes `raw`."""
        signing_key = Ed25519PrivateKey.from_private_bytes(derive_key(raw, "token signing"))
        return cls(
            derive_key(raw, "id", length=4).hex(), derive_key(raw, "nonce"), derive_key(raw, "api key"), signing_key
        )


def derive_key(raw: bytes, label: str, about: bytes = b"", *, length: int = 32) -> bytes:
    """The key of `length` bytes for the use `label` that HKDF derives from a raw secret; `about` is what it is for."""
    info = b"muniment " + label.encode() + about
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=None, info=info).derive(raw)


@dataclass(frozen=True, slots=True)
class Ring:
    """The secrets in use, newest first."""

    secrets: tuple[Secret, ...]

    @property
    def newest(self) -> Secret:
        """The secret for new tokens, keys and nonces."""
        return self.secrets[0]

    def find(self, secret_id: str) -> Secret | None:
        """The secret with this id, if it is in the ring."""
        return next((secret for secret in self.secrets if secret.id == secret_id), None)


@lru_cache(maxsize=4)
def ring_of(raw: tuple[bytes, ...]) -> Ring:
    """The ring of raw secrets. Deriving takes half a millisecond, so the last few rings are kept."""
    return Ring(tuple(Secret.derived_from(each) for each in raw))


def parse_secrets(text: str) -> tuple[bytes, ...]:
    """Secrets from text, separated by commas or line ends. Raises `SettingError`, which does not repeat them."""
    parts = [part for part in re.split(r"[,\s]+", text) if part]
    if not 1 <= len(parts) <= RING_SIZE_MAX or not all(_SECRET.fullmatch(part) for part in parts):
        raise SettingError(f"secret must be 1 to {RING_SIZE_MAX} secrets of 64 hex digits, newest first")
    if len({part.lower() for part in parts}) != len(parts):
        raise SettingError("secret contains the same secret twice")
    return tuple(bytes.fromhex(part) for part in parts)


class RingFile:
    """The default store of secrets: a file in the data directory, mode 0600, re-read when it changes."""

    def __init__(self, data_dir: Path) -> None:
        """The ring of `data_dir`; the file is created with a first secret if it does not exist."""
        self.path = data_dir / RING_FILE
        self._read: tuple[tuple[int, int], tuple[bytes, ...]] | None = None
        if not self.path.exists():
            data_dir.mkdir(parents=True, exist_ok=True)
            self._create()

    def __call__(self) -> tuple[bytes, ...]:
        """The raw secrets, newest first. One stat call unless the file has changed.

        A file that is damaged or gone does not stop a running service: the last ring stays in use.
        Raises `SettingError` without a ring.
        """
        version = self._version()
        if self._read is None or self._read[0] != version:
            self._read = (version, self._reread())
        return self._read[1]

    def _version(self) -> tuple[int, int]:
        try:
            status = self.path.stat()
        except OSError:
            return (0, 0)
        return (status.st_mtime_ns, status.st_ino)

    def _reread(self) -> tuple[bytes, ...]:
        try:
            return parse_secrets(self.path.read_text("ascii"))
        except (SettingError, OSError, UnicodeDecodeError) as error:
            if self._read is None:
                raise SettingError(f"{self.path} cannot be read as a ring of secrets") from None
            _log.error("the ring of secrets is damaged; the last one stays in use", error=type(error).__name__)
            return self._read[1]

    def rotate(self) -> Secret:
        """Add a new secret in front; older values stay valid. Raises `SettingError` when the ring is full."""
        with self._alone():
            new = chance.token_bytes(SECRET_BYTES)
            ring = (new, *self())
            if len(ring) > RING_SIZE_MAX:
                raise SettingError(f"the ring already has {RING_SIZE_MAX} secrets; retire one first")
            self._replace(ring)
        return Secret.derived_from(new)

    def retire(self) -> Secret:
        """Drop the oldest secret, which invalidates its tokens and keys. The last secret stays."""
        with self._alone():
            ring = self()
            if len(ring) == 1:
                raise SettingError("the only secret cannot be retired; rotate first")
            self._replace(ring[:-1])
        return Secret.derived_from(ring[-1])

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Let only one command at a time change the file."""
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _create(self) -> None:
        """Create the file, unless another process was faster: then its secret counts."""
        temporary = self._write_temporary((chance.token_bytes(SECRET_BYTES),))
        try:
            os.link(temporary, self.path)
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
        durable.flush_directory(self.path.parent)

    def _replace(self, ring: tuple[bytes, ...]) -> None:
        self._write_temporary(ring).replace(self.path)
        durable.flush_directory(self.path.parent)

    def _write_temporary(self, ring: tuple[bytes, ...]) -> Path:
        temporary = self.path.with_name(f"{RING_FILE}.{chance.token_hex(8)}")
        durable.write_file(temporary, "".join(f"{raw.hex()}\n" for raw in ring).encode())
        return temporary
