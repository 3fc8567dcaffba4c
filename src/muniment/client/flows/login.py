"""Log in by a signature; with the token: API keys, balances, a profile."""

from __future__ import annotations

import re
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta

from muniment.client.answers import decode
from muniment.client.failures import CannotSign, Forged, Unreachable
from muniment.client.flows.session import CREDENTIAL, JSON, POSTED, check_same, target
from muniment.client.signers import sign_text
from muniment.client.steps import Flow, Send, Sleep
from muniment.protocol.errors import Unauthenticated, Unavailable
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.sign_in import domain_of, is_loopback, normal_form, read_sign_in, write_sign_in
from muniment.protocol.users.types import ApiKeyResult, LoginResult, NonceResult, Profile
from muniment.protocol.wire import Amount, Record, encode, iso_time

if TYPE_CHECKING:
    from muniment.client.failures import Reply
    from muniment.client.flows.session import Session


# A text of another form could be a consent: the text of a deactivation is a signature of 130 digits.
_NONCE: Final = re.compile("0x[0-9a-f]{64}")


class Balance(Record, frozen=True):
    """Balance of one token on one chain, in base units; the price is in US dollars, 0 if unknown."""

    chain_id: int
    address: Address
    symbol: str
    decimals: Annotated[int, Meta(ge=0, le=255)]  # a uint8 (ERC-20)
    balance: Amount
    allowance: Amount
    price: float
    logo: str


def log_in(session: Session, lifetime_s: int | None = None) -> Flow[str]:
    """A new token, which the session keeps. Raises `Forged` for a text that a wallet must not sign.

    If the registry publishes its URL, the signed text names it, and is useless at another registry. A bare nonce could
    come from another registry: it is signed on this machine's own address, or where `bare_nonce` says so, and no more
    where the registry has given words before. Raises `CannotSign` for any other.

    `lifetime_s`: lifetime in seconds of this and later tokens of the session. None: as before, or the default of the
    service.
    """
    address = session.signing_address()
    if lifetime_s is not None:
        session.lifetime_s = lifetime_s
    lifetime = {} if session.lifetime_s is None else {"lifetimeSeconds": session.lifetime_s}
    begun_s, failures = session.retry.seconds(), 0
    while True:
        failures += 1
        asked = Send("POST", "/users/nonce", encode({"address": address}), POSTED)
        reply = yield from session.answered(asked)
        given = decode(reply, NonceResult)
        check_same(given.address, address, "address")
        if not _NONCE.fullmatch(given.nonce):
            raise Forged("the text to sign is not a nonce: it could be consent to something else")
        text = _words(session, given, given.public_url, reply) if given.public_url else _bare(session, given.nonce)
        message = {"message": text} if given.public_url else {}
        signature = yield from sign_text(address, text)
        body = encode({"address": address, "signature": signature, **message, **lifetime})
        try:
            # A nonce works once: after a lost answer it may be used up.
            reply = yield from session.answered(Send("POST", "/users/authenticate", body, POSTED, is_repeatable=False))
        except (Unreachable, Unavailable) as error:
            if (pause_s := session.retry.pause_after_loss(error, failures, begun_s)) is None:
                raise
            yield Sleep(pause_s)
            continue
        found = decode(reply, LoginResult)
        check_same(found.address, address, "address")
        session.token = _credential(found.token)
        return session.token


def _words(session: Session, given: NonceResult, url: str, reply: Reply) -> str:
    """The text to sign for a registry whose users reach it at `url`.

    It has the time of the registry's clock, which limits the nonce. Raises `CannotSign` if `url` is not the registry
    that the client talks to, which could otherwise log in there with the signature, or is no URL.
    """
    nonce, issued_at = given.nonce.removeprefix("0x"), _date(session, reply)
    try:
        text = write_sign_in(url, address=given.address, nonce=nonce, issued_at=issued_at)
        is_here = normal_form(url) == normal_form(session.url)
        # A line break would add lines to the text.
        is_url = read_sign_in(text).uri == url
    except ValueError:
        text, is_here, is_url = "", False, False
    if not is_url:
        raise CannotSign(f"{session.url} names itself by what is no URL: {url!r}. Nothing was signed")
    if not is_here:
        raise CannotSign(
            f"{session.url} asks for a log-in at {url}. Nothing was signed. To log in there, give its own URL; on the "
            f"command line: --url {url}"
        )
    session.words.add(_origin(session))
    return text


def _bare(session: Session, nonce: str) -> str:
    """The nonce as the text to sign, where that is safe or asked for by name. Raises `CannotSign`."""
    fault = f"{session.url} asks for the signature of a bare nonce, which could be that of another registry"
    if _origin(session) in session.words:
        raise CannotSign(
            f"{fault}, although it gave a text with its name before. Nothing was signed. If that "
            f"is right, remove {_origin(session)} from {session.words}"
        )
    if not (session.bare_nonce or is_loopback(session.url)):
        raise CannotSign(
            f"{fault}. Nothing was signed. Its operator can set MUNIMENT_PUBLIC_URL; to sign nevertheless, give "
            "bare_nonce, on the command line --bare-nonce"
        )
    return nonce


def _origin(session: Session) -> str:
    return f"{urlsplit(session.url).scheme}://{domain_of(session.url)}"


def _date(session: Session, reply: Reply) -> str:
    """The time of an answer by its `Date` (RFC 9110 section 6.6.1), or of this machine."""
    try:
        return iso_time(int(parsedate_to_datetime(reply.headers.get("date", "")).timestamp() * 1_000))
    except (ValueError, OverflowError):
        return iso_time(int(session.retry.now() * 1_000))


def _credential(given: str) -> str:
    """A credential of an answer, which files and headers are to hold. Raises `Forged` without showing it."""
    if CREDENTIAL.fullmatch(given) is None:
        raise Forged("the service returned a credential with characters that HTTP headers do not allow")
    return given


def with_token(session: Session, send: Send) -> Flow[Reply]:
    """The answer to `send` with a token; logs in without one, and once more if it is refused.

    Raises `Unauthenticated` for a refused token if there is no signer.
    """
    is_new = session.token is None
    token = session.token or (yield from log_in(session))
    try:
        return (yield from session.answered(_with(send, token)))
    except Unauthenticated:
        if is_new or session.address is None or not session.can_sign:
            raise
    return (yield from session.answered(_with(send, (yield from log_in(session)))))


def _with(send: Send, token: str) -> Send:
    return replace(send, headers={**send.headers, "x-auth-token": token})


def api_key(session: Session) -> Flow[str]:
    """The API key of the wallet, which the session keeps."""
    if session.api_key is None:
        found = decode((yield from with_token(session, Send("GET", "/users/api-key", headers=JSON))), ApiKeyResult)
        check_same(found.address, session.signing_address(), "address")
        session.api_key = _credential(found.api_key)
    return session.api_key


def rotate_api_key(session: Session, grace_s: int | None = None) -> Flow[str]:
    """A new API key; the old one works for `grace_s` more seconds, or the default of the service.

    A second rotation would end the first key at once, so the request is sent again only if it was never sent.
    """
    body = encode({} if grace_s is None else {"graceSeconds": grace_s})
    send = Send("POST", "/users/api-key/rotate", body, POSTED, is_repeatable=False)
    found = decode((yield from with_token(session, send)), ApiKeyResult)
    check_same(found.address, session.signing_address(), "address")
    if found.api_key == session.api_key:
        raise Forged("the service claims to have replaced the API key, but returned the old one")
    session.api_key = _credential(found.api_key)
    return session.api_key


def balances(session: Session) -> Flow[list[Balance]]:
    """The balances of the wallet, as the service claims."""
    return decode((yield from with_token(session, Send("GET", "/users/tokens", headers=JSON))), list[Balance])


def profile(session: Session) -> Flow[Profile]:
    """The profile of the wallet."""
    send = Send("GET", target("/users/{}/data", session.signing_address()), headers=JSON)
    found = decode((yield from with_token(session, send)), Profile)
    check_same(found.user_address, session.signing_address(), "address")
    return found
