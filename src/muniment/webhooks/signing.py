"""Signatures of Standard Webhooks 1.0 (standardwebhooks.com, "Webhook signing").

What is signed is `<webhook-id>.<webhook-timestamp>.<body>`. Each request has both kinds of signature: `v1`, an
HMAC-SHA256, and `v1a`, Ed25519. A `v1` shows a receiver that this registry sent the request. A `v1a` proves it to
others too, because a receiver cannot make one.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muniment.webhooks.keys import HookKeys, Signers


def signed_fields(signers: Signers, message_id: str, timestamp_s: int, body: bytes) -> list[tuple[str, str]]:
    """The three header fields of a request; `message_id` has no dot, `timestamp_s` is in Unix seconds.

    The current `v1` comes last: some libraries look only at the part behind the last comma.
    """
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    current, old = signers
    signatures = [_public(current, signed), _mac(current, signed)]
    if old is not None:
        signatures[1:1] = [_public(old, signed), _mac(old, signed)]
    return [
        ("webhook-id", message_id),
        ("webhook-timestamp", str(timestamp_s)),
        ("webhook-signature", " ".join(signatures)),
    ]


def _mac(keys: HookKeys, signed: bytes) -> str:
    return "v1," + b64encode(hmac.digest(keys.mac_key, signed, sha256)).decode("ascii")


def _public(keys: HookKeys, signed: bytes) -> str:
    return "v1a," + b64encode(keys.signing_key.sign(signed)).decode("ascii")
