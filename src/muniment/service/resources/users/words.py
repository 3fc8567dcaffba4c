"""Log-in by a signed ERC-4361 text (Sign-In with Ethereum) that names this registry. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.protocol.errors import InvalidAddress
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.sign_in import SignIn, domain_of, read_sign_in
from muniment.protocol.evm.signature import personal_digest, recover
from muniment.service.auth.nonces import WINDOW_MS, Nonce, named_nonce

if TYPE_CHECKING:
    from muniment.protocol.users.types import Login
    from muniment.service.auth.secrets import Ring


def worded(login: Login, url: str, now_ms: int) -> SignIn | None:
    """The fields of a log-in's message; None unless its address signed it for the registry at `url`, valid now."""
    text = login.message or ""
    try:
        said = read_sign_in(text)
        address = Address.parse(said.address)
    except (ValueError, InvalidAddress):
        return None
    is_about = (
        address == login.address
        and said.scheme in {None, url.partition(":")[0].lower()}
        and (said.domain, said.uri) == (domain_of(url), url)
        and (said.not_before_ms is None or said.not_before_ms <= now_ms)
        and (said.expires_at_ms is None or now_ms < said.expires_at_ms)
    )
    is_signed = is_about and recover(personal_digest(text.encode()), login.signature) == address
    return said if is_signed else None


def nonce_of(said: SignIn, ring: Ring, address: Address, window: int) -> Nonce | None:
    """The nonce of `address` in a message, acceptable in `window`; None if `issued-at` is outside its lifetime."""
    nonce = named_nonce(ring, address, said.nonce, window)
    # A nonce is accepted in the windows around its own.
    if nonce is None or abs(said.issued_at_ms // WINDOW_MS - nonce.window) > 1:
        return None
    return nonce
