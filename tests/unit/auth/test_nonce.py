"""Nonces are a function of secret, address, window and slot, and only their owner's signature finds them."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from builders import Wallet
from conftest import Clock
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature, recover
from muniment.service.auth import nonces
from muniment.service.auth.nonces import SLOTS, WINDOW_MS, Nonce, issue_nonce, signed_nonce, slots_of, use_nonce
from muniment.service.auth.secrets import Ring, ring_of
from muniment.service.context import Context

OWNER = Wallet(51)
ADDRESS = Address.parse(OWNER.address)


def nonce_of(context: Context, ring: Ring, address: Address, signature: Signature, now_ms: int) -> Nonce | None:
    return signed_nonce(ring, address, signature, now_ms // WINDOW_MS, slots_of(context, 0, address))


async def test_a_nonce_is_the_mac_of_fields_of_fixed_width(context: Context, clock: Clock) -> None:
    nonce = await issue_nonce(context, ADDRESS)
    window = clock.now_ms // WINDOW_MS
    fields = ADDRESS.raw + window.to_bytes(8) + bytes([nonce.slot])
    key = ring_of(context.secrets()).newest.nonce_key
    assert nonce.window == window
    assert nonce.raw == hmac.new(key, fields, hashlib.sha256).digest()
    assert nonce.text == "0x" + nonce.raw.hex()


async def test_devices_that_ask_one_after_the_other_get_every_slot(context: Context) -> None:
    given = [await issue_nonce(context, ADDRESS) for _ in range(SLOTS)]
    assert sorted(nonce.slot for nonce in given) == list(range(SLOTS))
    assert len({nonce.raw for nonce in given}) == SLOTS


async def test_slots_that_were_used_are_left_out(context: Context) -> None:
    used = [await issue_nonce(context, ADDRESS) for _ in range(SLOTS - 1)]
    for nonce in used:
        assert await context.database.write(lambda tx, nonce=nonce: use_nonce(tx, ADDRESS, nonce))
    left = {(await issue_nonce(context, ADDRESS)).slot for _ in range(10)}
    assert left == set(range(SLOTS)) - {nonce.slot for nonce in used}


async def test_a_nonce_is_used_once(context: Context) -> None:
    nonce = await issue_nonce(context, ADDRESS)
    used = [await context.database.write(lambda tx: use_nonce(tx, ADDRESS, nonce)) for _ in range(3)]
    assert used == [True, False, False]


async def test_using_a_nonce_leaves_the_nonces_of_others_valid(context: Context) -> None:
    nonce = await issue_nonce(context, ADDRESS)
    other = Address.parse(Wallet(52).address)
    assert await context.database.write(lambda tx: use_nonce(tx, other, nonce))
    assert await context.database.write(lambda tx: use_nonce(tx, ADDRESS, nonce))


@pytest.mark.parametrize("as_text", [True, False], ids=["text", "bytes"])
async def test_a_signature_finds_its_nonce(context: Context, clock: Clock, *, as_text: bool) -> None:
    ring = ring_of(context.secrets())
    for _ in range(SLOTS):
        nonce = await issue_nonce(context, ADDRESS)
        signature = Signature.parse(OWNER.sign_text(nonce.text) if as_text else OWNER.sign_bytes(nonce.raw))
        assert nonce_of(context, ring, ADDRESS, signature, clock.now_ms) == nonce
        assert nonce_of(context, ring, Address.parse(Wallet(52).address), signature, clock.now_ms) is None


async def test_the_nonce_that_was_given_last_is_found_by_one_recovery(
    context: Context, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring, digests = ring_of(context.secrets()), list[bytes]()

    def recovered(digest: bytes, signature: Signature) -> Address | None:
        digests.append(digest)
        return recover(digest, signature)

    monkeypatch.setattr(nonces, "recover", recovered)
    for _ in range(SLOTS):
        nonce = await issue_nonce(context, ADDRESS)
        digests.clear()
        assert nonce_of(context, ring, ADDRESS, Signature.parse(OWNER.sign_text(nonce.text)), clock.now_ms) == nonce
        assert len(digests) == 1


async def test_a_nonce_given_just_before_a_rotation_is_taken_after_it(context: Context, clock: Clock) -> None:
    nonce = await issue_nonce(context, ADDRESS)
    signature = Signature.parse(OWNER.sign_text(nonce.text))
    raw = context.secrets()
    assert nonce_of(context, ring_of((b"\1" * 32, *raw)), ADDRESS, signature, clock.now_ms) == nonce
    assert nonce_of(context, ring_of((b"\2" * 32, b"\1" * 32, *raw)), ADDRESS, signature, clock.now_ms) is None
    assert nonce_of(context, ring_of((b"\1" * 32,)), ADDRESS, signature, clock.now_ms) is None


async def test_a_service_with_another_secret_gives_other_nonces(context: Context, clock: Clock) -> None:
    nonce = await issue_nonce(context, ADDRESS)
    signature = Signature.parse(OWNER.sign_text(nonce.text))
    assert nonce_of(context, ring_of((b"\3" * 32,)), ADDRESS, signature, clock.now_ms) is None
