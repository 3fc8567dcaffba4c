"""The keys of a webhook: derived from a secret of the ring, so that nothing secret is stored.

HKDF-SHA256 (RFC 5869) gives two keys of 32 bytes for each hook and generation: one for the MAC that a receiver checks
with a secret (`v1`), one for the Ed25519 signature that anybody checks with a public key (`v1a`). Their texts are those
of Standard Webhooks 1.0: `whsec_` and `whpk_`, each before base64.
"""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from muniment.auth.secrets import derive_key, ring_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.webhooks.store import Hook

# Two for each of the thousand hooks that a registry may have; an entry takes under a kilobyte.
_KEYS_KEPT: Final = 2_048


class HookKeys(NamedTuple):
    """The keys of one generation. Never shown as they are: `secret_text` goes to the owner alone."""

    mac_key: bytes
    signing_key: Ed25519PrivateKey

    def __repr__(self) -> str:
        """Without the keys: they must not reach a log."""
        return "HookKeys()"

    @property
    def secret_text(self) -> str:
        """The secret of the receiver: `whsec_` and base64."""
        return "whsec_" + b64encode(self.mac_key).decode("ascii")

    @property
    def public_text(self) -> str:
        """The public key: `whpk_` and base64."""
        raw = self.signing_key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return "whpk_" + b64encode(raw).decode("ascii")


class Signers(NamedTuple):
    """The keys that sign now: `current`, and those before as long as they count."""

    current: HookKeys
    old: HookKeys | None


def newest_secret_id(secrets: Sequence[bytes]) -> str:
    """The id of the secret to which a new hook is pinned; `secrets` are the raw ones of the ring, newest first."""
    return ring_of(tuple(secrets)).newest.id


def signers_of(secrets: Sequence[bytes], hook: Hook, now_ms: int) -> Signers | None:
    """The keys of `hook`; None when the secret to which it is pinned was retired: then it is to be suspended."""
    current = _find(secrets, hook.id, hook.secret_id, hook.generation)
    if current is None:
        return None
    old = None
    if hook.old_secret_id is not None and hook.old_until_ms is not None and now_ms < hook.old_until_ms:
        old = _find(secrets, hook.id, hook.old_secret_id, hook.generation - 1)
    return Signers(current, old)


def _find(secrets: Sequence[bytes], hook_id: bytes, secret_id: str, generation: int) -> HookKeys | None:
    raw = tuple(secrets)
    for secret, each in zip(ring_of(raw).secrets, raw, strict=True):
        if secret.id == secret_id:
            return _derived(each, hook_id, generation)
    return None


@lru_cache(maxsize=_KEYS_KEPT)
def _derived(secret: bytes, hook_id: bytes, generation: int) -> HookKeys:
    about = b" " + hook_id + generation.to_bytes(8)
    signing_key = Ed25519PrivateKey.from_private_bytes(derive_key(secret, "webhook ed25519", about))
    return HookKeys(derive_key(secret, "webhook mac", about), signing_key)
