"""Log-in by a signed ERC-4361 text (Sign-In with Ethereum) that names this registry. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.protocol.errors import LoginFailed
from muniment.protocol.evm.sign_in import SignIn, domain_of, normal_form, read_sign_in
from muniment.protocol.evm.signature import personal_digest, recover
from muniment.service.auth.nonces import WINDOW_MS, Nonce, named_nonce

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.protocol.users.types import Login
    from muniment.service.auth.secrets import Ring


def read_words(login: Login, url: str, now_ms: int) -> SignIn | None:
    """The fields of a log-in's message for the registry at `url`; None if its address did not sign it.

    Raises `LoginFailed`, which names the line that is wrong.
    """
    text = login.message or ""
    try:
        said = read_sign_in(text)
        fault = _fault(said, login.address, url, now_ms)
    except ValueError as error:
        raise LoginFailed(f"the message is not an ERC-4361 text: {error}") from None
    if fault:
        raise LoginFailed(f"{fault}; ask for a new nonce, and write the message as POST /users/nonce says")
    return said if recover(personal_digest(text.encode()), login.signature) == login.address else None


def _fault(said: SignIn, address: Address, url: str, now_ms: int) -> str:
    """The line of a message that is wrong, and what is right; empty if all are right. Raises `ValueError`."""
    scheme, domain = url.partition(":")[0].lower(), domain_of(url)
    if said.scheme is not None and said.scheme.lower() != scheme:
        return f"the first line of the message has another scheme than this registry, which is at {scheme}"
    if "@" in said.domain or domain_of(f"{scheme}://{said.domain}") != domain:
        return f"the first line of the message names another host than this registry, which is {domain}"
    if said.address.lower() != str(address).lower():
        return f"the second line of the message is another address than the one that logs in, {address}"
    if normal_form(said.uri) != normal_form(url):
        return f"the line URI of the message is not {url}, which is this registry"
    if said.not_before_ms is not None and now_ms < said.not_before_ms:
        return "the line Not Before of the message is in the future"
    if said.expires_at_ms is not None and said.expires_at_ms <= now_ms:
        return "the line Expiration Time of the message is in the past"
    return ""


def nonce_of(said: SignIn, ring: Ring, address: Address, window: int) -> Nonce | None:
    """The nonce of `address` in a message, acceptable in `window`. Raises `LoginFailed` for a wrong `issued-at`."""
    nonce = named_nonce(ring, address, said.nonce, window)
    # A nonce is accepted in the windows around its own.
    if nonce is not None and abs(said.issued_at_ms // WINDOW_MS - nonce.window) > 1:
        raise LoginFailed("the line Issued At of the message is not the time of its nonce; ask for a new nonce")
    return nonce
