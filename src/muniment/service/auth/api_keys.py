"""API keys. They are derived, not stored, so they can be shown again at any time; only a generation is stored.

`mnk_<secret id>_<address>_<generation>_<MAC>`: a key is checked by deriving it again and comparing the whole text.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import InvalidApiKey
from muniment.protocol.evm.address import Address
from muniment.service.auth.secrets import Ring, Secret

if TYPE_CHECKING:
    from muniment.service.context import Context

# The longest grace that a client can choose, `users.types.GRACE_SECONDS_MAX`.
GRACE_MS_MAX: Final = 90 * 86_400 * 1000
_KEY: Final = re.compile(r"mnk_([0-9a-f]{8})_([0-9a-f]{40})_([1-9][0-9]{0,17})_[0-9a-f]{64}")


def api_key(secret: Secret, address: Address, generation: int) -> str:
    """The key of `address` in a generation, under a secret."""
    mac = hmac.digest(secret.api_key_key, address.raw + generation.to_bytes(8), "sha256")
    return f"mnk_{secret.id}_{address.raw.hex()}_{generation}_{mac.hex()}"


def read_api_key(ring: Ring, key: str) -> tuple[Address, int]:
    """The address and the generation in a key. Raises `InvalidApiKey` unless a secret of `ring` made it."""
    match = _KEY.fullmatch(key)
    secret = ring.find(match[1]) if match else None
    if match is None or secret is None:
        raise InvalidApiKey("not an API key of this service")
    address, generation = Address.from_raw(bytes.fromhex(match[2])), int(match[3])
    if not hmac.compare_digest(api_key(secret, address, generation), key):
        raise InvalidApiKey("not an API key of this service")
    return address, generation


async def check_generation(context: Context, address: Address, generation: int) -> None:
    """Raise `InvalidApiKey` unless `generation` is the current one, or the previous one within its grace period."""
    row = await context.database.fetch_one(
        "SELECT key_generation, grace_until_ms FROM users WHERE address = ?", (address.raw,)
    )
    current, grace_until_ms = row or (0, 0)
    # A grace period beyond the maximum came from a clock that was ahead.
    in_grace = generation == current - 1 and 0 < grace_until_ms - context.now_ms() <= GRACE_MS_MAX
    if generation != current and not in_grace:
        raise InvalidApiKey("this API key was replaced; GET /users/api-key returns the current one")
