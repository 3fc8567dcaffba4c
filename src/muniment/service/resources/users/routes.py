"""The endpoints of users: log-in, API keys, balances and profiles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from muniment.protocol.errors import (
    ChainsUnavailable,
    DiskAlmostFull,
    ForeignProfile,
    InvalidBody,
    LoginFailed,
    TooManyLogins,
)
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import HexString
from muniment.protocol.users.types import (
    ApiKeyResult,
    KeySet,
    Login,
    LoginResult,
    NonceRequest,
    NonceResult,
    Profile,
    ProfileUpdate,
    Rotation,
)
from muniment.protocol.wire import encode
from muniment.service.auth.caller import TokenCaller, api_key, issue_token, key_set
from muniment.service.auth.nonces import (
    USED_NONCES,
    WINDOW_MS,
    Nonce,
    issue_nonce,
    signed_nonce,
    slots_of,
    use_nonce,
    window_at,
)
from muniment.service.auth.secrets import ring_of
from muniment.service.context import Context
from muniment.service.http.operation import Answer, operation
from muniment.service.http.reply import JSON, NO_STORE, Ready
from muniment.service.http.request import Request
from muniment.service.resources.users import balances, store
from muniment.service.resources.users.balances import TokenBalance
from muniment.service.resources.users.words import nonce_of, read_words
from muniment.service.running.limits.costs import BALANCES, DEBTS, LOGIN, NONCE, READ, TOKEN_READ, TOKEN_WRITE, Shed
from muniment.service.storage.database import InsertOnce, Made

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muniment.service.storage.database import Row, Transaction

_PRIVATE = (JSON, NO_STORE)


@operation("POST", "/users/nonce", cost=NONCE, sheds=Shed.MIDDLE, refuses=(TooManyLogins,))
async def request_nonce(context: Context, body: NonceRequest) -> Ready[NonceResult]:
    """Ask for a nonce to sign.

    The nonce is good for five to ten minutes and for one login. The request stores nothing.
    """
    nonce = await issue_nonce(context, body.address)
    shown = NonceResult(
        address=body.address, nonce=HexString.from_raw(nonce.raw), public_url=_public_url(context) or None
    )
    return Ready(encode(shown), _PRIVATE)


def _public_url(context: Context) -> str:
    return context.settings.public_url.rstrip("/")


@operation("POST", "/users/authenticate", cost=LOGIN, sheds=Shed.LATE, refuses=(LoginFailed, DiskAlmostFull))
async def authenticate(context: Context, request: Request, body: Login) -> Ready[LoginResult]:
    """Log in with a signed nonce.

    The signature is EIP-191 (`personal_sign`) over the nonce, as the text `0x…` or as its 32 bytes; or over `message`,
    an ERC-4361 text that names a registry with a `publicUrl`. Such a signature is invalid at any other registry. A
    short `lifetimeSeconds` limits the use of a stolen token.
    """
    lifetime_s = _lifetime_s(context, body)
    try:
        email = await _log_in(context, body)
    except LoginFailed:
        context.metrics.counter("logins_total", outcome="failed").add()
        # One number is charged for any failed log-in.
        request.owe(request.client.client, DEBTS[LoginFailed] * (len(context.number.recent) - 1))
        raise
    context.metrics.counter("logins_total", outcome="succeeded").add()
    result = LoginResult(address=body.address, token=issue_token(context, body.address, lifetime_s), email=email)
    return Ready(encode(result), _PRIVATE)


def _lifetime_s(context: Context, body: Login) -> int:
    """The lifetime of the token in seconds. Raises `InvalidBody` for more than the settings allow."""
    most = context.settings.token_lifetime_s
    if body.lifetime_seconds is not None and body.lifetime_seconds > most:
        raise InvalidBody(f"a token of this registry is valid for at most {most} seconds", pointer="/lifetimeSeconds")
    return body.lifetime_seconds or most


async def _log_in(context: Context, body: Login) -> str | None:
    """Use up the signed nonce; returns the user's email address. Raises `LoginFailed`."""
    now_ms = context.clock.now_ms()
    find = _find_signed if body.message is None else _find_named
    nonce = await find(context, body, now_ms)
    if nonce is None:
        raise _login_failed()

    context.disk.require_for_login()

    async def log_in(transaction: Transaction) -> str | None:
        if not await use_nonce(transaction, body.address, nonce):
            raise _login_failed()
        return await store.ensure_user(transaction, body.address, now_ms)

    def again(user: Row) -> Made[str | None] | None:
        """A further log-in only uses up the nonce; the first one also adds the user."""
        address, email, forgotten = user
        is_usual = address is not None and (forgotten is None or nonce.window > forgotten)
        return Made(email, (body.address.raw, nonce.window, nonce.slot)) if is_usual else None

    write = InsertOnce(store.USER, (body.address.raw,), *USED_NONCES, again, log_in)
    return await context.database.write(write, order=body.address.raw)


async def _find_signed(context: Context, body: Login, now_ms: int) -> Nonce | None:
    """The nonce that a log-in without a message signs. Raises `LoginFailed` where words are required."""
    if not context.settings.bare_nonces:
        raise LoginFailed(
            f"this registry takes no bare nonce: sign an ERC-4361 text that names {_public_url(context)}, and send it "
            "as `message`"
        )
    number, window = context.number, now_ms // WINDOW_MS
    tried = number.recent
    if nonce := await _find_in(context, body, window, tried):
        return nonce
    await number.read_recent()
    given_in = await window_at(context.database, now_ms)
    rest = [each for each in number.recent if given_in != window or each not in tried]
    return await _find_in(context, body, given_in, rest)


async def _find_in(context: Context, body: Login, window: int, numbers: Iterable[int]) -> Nonce | None:
    ring = ring_of(context.secrets())
    for number in numbers:
        if nonce := signed_nonce(ring, body.address, body.signature, window, slots_of(context, number, body.address)):
            return nonce
        await asyncio.sleep(0)  # the recoveries of a number take three milliseconds, in which nobody is served
    return None


async def _find_named(context: Context, body: Login, now_ms: int) -> Nonce | None:
    """The nonce in the message of a log-in. Raises `LoginFailed`; `InvalidBody` without a `publicUrl`."""
    if not (url := _public_url(context)):
        raise InvalidBody(
            "this registry has no public_url that a message could name: sign the nonce", pointer="/message"
        )
    ring = ring_of(context.secrets())
    if (said := read_words(body, url, now_ms)) is None:
        return None
    nonce = nonce_of(said, ring, body.address, now_ms // WINDOW_MS)
    return nonce or nonce_of(said, ring, body.address, await window_at(context.database, now_ms))


def _login_failed() -> LoginFailed:
    return LoginFailed("the signature is not by this address over a nonce that is still good; ask for a new nonce")


@operation("GET", "/users/api-key", cost=TOKEN_READ, sheds=Shed.READ)
async def get_api_key(context: Context, caller: TokenCaller) -> Ready[ApiKeyResult]:
    """Read the caller's API key.

    The key stays the same until it is rotated.
    """
    generation = await store.find_generation(context.database, caller.address)
    if generation is None:  # a valid token without a row: the database was restored from a backup
        generation = await context.database.write(
            lambda tx: store.first_generation(tx, caller.address, context.clock.now_ms()), order=caller.address.raw
        )
    return _key_result(context, caller, generation)


@operation("POST", "/users/api-key/rotate", cost=TOKEN_WRITE, sheds=Shed.LATE, refuses=(DiskAlmostFull,))
async def rotate_api_key(context: Context, caller: TokenCaller, body: Rotation | None) -> Ready[ApiKeyResult]:
    """Replace the caller's API key.

    The previous key stays valid for `graceSeconds`; older keys are refused from now on.
    """
    context.disk.require()
    now_ms = context.clock.now_ms()
    grace_until_ms = now_ms + (body or Rotation()).grace_seconds * 1000

    generation = await context.database.write(
        lambda tx: store.next_generation(tx, caller.address, now_ms, grace_until_ms), order=caller.address.raw
    )
    return _key_result(context, caller, generation)


@operation("GET", "/.well-known/jwks.json", cost=READ, sheds=Shed.READ)
async def get_key_set(context: Context) -> Ready[KeySet]:
    """Read the public keys of the tokens.

    A JWK Set (RFC 7517): with it, a server that trusts this registry checks tokens by itself.
    """
    return Ready(encode(key_set(ring_of(context.secrets()))), (JSON, (b"cache-control", b"public, max-age=60")))


@operation(
    "GET", "/users/tokens", cost=BALANCES, sheds=Shed.EARLY, refuses=(ChainsUnavailable,),
    answers={200: Answer("Done", headers={
        "x-partial": "Chains that are left out, as `chain=137; reason=timeout`",
        "x-unpriced": "Tokens whose price is unknown and given as 0, as `8453:0x…`; at most 50, then `more=12`",
    })},
)  # fmt: skip
async def list_balances(context: Context, caller: TokenCaller) -> Ready[list[TokenBalance]]:
    """List the caller's token balances.

    Tokens and coins that the caller holds, on every configured chain, with the allowance given to the chain's
    settler. Balance and allowance are of one block.
    """
    portfolio = await context.holdings.of(caller.address)
    return Ready(encode(balances.records(portfolio)), (*_PRIVATE, *balances.shortcomings(portfolio)))


@operation("GET", "/users/{address}/data", cost=TOKEN_READ, sheds=Shed.READ, refuses=(ForeignProfile,))
async def get_profile(context: Context, caller: TokenCaller, address: Address) -> Ready[Profile]:
    """Read the caller's profile.

    The profile of another user is refused, whether or not it exists.
    """
    _check_own(caller, address)
    profile = await store.find_profile(context.database, address)
    if profile is None:  # see get_api_key
        profile = await context.database.write(
            lambda tx: store.update_profile(tx, address, ProfileUpdate(), context.clock.now_ms()), order=address.raw
        )
    return Ready(encode(profile), _PRIVATE)


@operation("POST", "/users/{address}/data", cost=TOKEN_WRITE, sheds=Shed.LATE, refuses=(ForeignProfile, DiskAlmostFull))
async def update_profile(
    context: Context, caller: TokenCaller, address: Address, body: ProfileUpdate
) -> Ready[Profile]:
    """Update the caller's profile.

    Absent members stay unchanged. The operator sets the email.
    """
    _check_own(caller, address)
    context.disk.require()
    profile = await context.database.write(
        lambda tx: store.update_profile(tx, address, body, context.clock.now_ms()), order=address.raw
    )
    return Ready(encode(profile), _PRIVATE)


def _check_own(caller: TokenCaller, address: Address) -> None:
    if caller.address != address:
        raise ForeignProfile("only its own address may read or change a profile")


def _key_result(context: Context, caller: TokenCaller, generation: int) -> Ready[ApiKeyResult]:
    key = api_key(ring_of(context.secrets()).newest, caller.address, generation)
    return Ready(encode(ApiKeyResult(address=caller.address, api_key=key)), _PRIVATE)


OPERATIONS = (
    request_nonce,
    authenticate,
    get_api_key,
    rotate_api_key,
    list_balances,
    get_profile,
    update_profile,
    get_key_set,
)
