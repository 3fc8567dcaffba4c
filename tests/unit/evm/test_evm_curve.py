"""Signing and recovery against the curve in plain Python, at their edges; secret keys that are none."""

import hashlib
import traceback

import pytest
from evm_vectors import cases, key_of
from hypothesis import example, given, settings, strategies as st

import curve
from curve import ORDER, POINT, P
from each_row import each_row
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.signature import Signature, address_of_key, is_by, recover, sign

HALF = ORDER // 2
EDGES = [0, 1, 2, HALF, HALF + 1, ORDER - 1, ORDER, ORDER + 1, P, 2**256 - 1]
digests = st.sampled_from(EDGES).map(lambda number: number.to_bytes(32)) | st.binary(min_size=32, max_size=32)
keys = st.sampled_from([1, 2, HALF, HALF + 1, ORDER - 2, ORDER - 1]) | st.integers(1, ORDER - 1)
# P - ORDER numbers r have a twin r + ORDER that is the x of another point. Ids 2 and 3 mean that one; v never does.
xs = st.sampled_from([1, 2, 3, 4, P - ORDER - 1, P - ORDER, ORDER - 1]) | st.integers(1, ORDER - 1)
low_s = st.sampled_from([1, 2, HALF - 1, HALF]) | st.integers(1, HALF)
quick = settings(max_examples=30, deadline=None)  # plain Python needs 25 ms for each

# Made by others with RFC 6979 and SHA-256, and passed around since 2013: key, message, r and s.
SIGNED = [
    (
        1, "Satoshi Nakamoto",
        "934b1ea10a4b3c1757e2b0c017d0b6143ce3c9a7e6a4a49860d7a6ab210ee3d8",
        "2442ce9d2b916064108014783e923ec36b49743e2ffa1c4496f01a512aafd9e5",
    ),
    (
        1, "All those moments will be lost in time, like tears in rain. Time to die...",
        "8600dbd41e348fe5c9465ab92d23e3db8b98b873beecd930736488696438cb6b",
        "547fe64427496db33bf66019dacbf0039c04199abb0122918601db38a72cfc21",
    ),
    (
        ORDER - 1, "Satoshi Nakamoto",
        "fd567d121db66e382991534ada77a6bd3106f0a1098c231e47993447cd6af2d0",
        "6b39cd0eb1bc8603e159ef5c20a5c8ad685a45b06ce9bebed3f153d10d93bed5",
    ),
    (
        0xF8B8AF8CE3C7CCA5E300D33939540C10D45CE001B8F252BFBC57BA0342904181, "Alan Turing",
        "7063ae83e7f62bbb171798131b4a0564b956930092b33b07b395615d9ec7e15c",
        "58dfcc1e00a35e1572f366ffe34ba0fc47db1e7189759b9fb233c5b05ab388ea",
    ),
]  # fmt: skip


def spelled(r: int, s: int, recovery_id: int) -> str:
    return f"0x{r:064x}{s:064x}{27 + recovery_id:02x}"


def address_of(point: curve.Point) -> Address | None:
    if point is None:
        return None
    x, y = point
    return Address.from_raw(keccak256(x.to_bytes(32) + y.to_bytes(32))[12:])


@given(digests, keys)
@quick
def test_a_signature_is_the_one_of_the_definition_with_low_s_and_names_its_signer(digest: bytes, key: int) -> None:
    signature = sign(digest, key.to_bytes(32))
    r, s, recovery_id = curve.signed(digest, key)

    assert s <= HALF
    assert recovery_id in {0, 1}
    assert signature == spelled(r, s, recovery_id) == Signature.parse(signature)
    assert recover(digest, signature) == address_of_key(key.to_bytes(32)) == address_of(curve.times(key, POINT))


@given(digests, xs, low_s, st.sampled_from([0, 1]))
@example(bytes(32), 5, 1, 0)  # no point of the curve has this x
@example(bytes(32), P - ORDER - 1, HALF, 1)
@quick
def test_the_signer_of_any_canonical_signature_is_the_one_of_the_definition(
    digest: bytes, r: int, s: int, recovery_id: int
) -> None:
    signature = Signature.parse(spelled(r, s, recovery_id))
    expected = address_of(curve.recovered(digest, r, s, recovery_id))

    assert recover(digest, signature) == expected
    assert is_by(expected or Address.from_raw(bytes(20)), digest, signature) is (expected is not None)
    assert not is_by(Address.parse("0x" + "12" * 20), digest, signature)


def test_r_is_the_x_of_the_point_also_where_r_and_the_order_together_are_one() -> None:
    small = next(r for r in range(1, 99) if curve.lifted(r, 0) and curve.lifted(r + ORDER, 0))
    with_id = [address_of(curve.recovered(bytes(32), small, 1, recovery_id)) for recovery_id in range(4)]

    assert len({*with_id, None}) == 5
    found = [recover(bytes(32), Signature.parse(spelled(small, 1, recovery_id))) for recovery_id in (0, 1)]
    assert found == with_id[:2]


@each_row("nonce", [1, 2, ORDER - 1])
def test_no_key_is_recovered_at_infinity(nonce: int) -> None:
    point = curve.times(nonce, POINT)
    assert point is not None
    s = 7
    digest = (s * nonce % ORDER).to_bytes(32)  # the key is (s·R - digest·G) / r
    signature = Signature.parse(spelled(point[0], s, point[1] & 1))
    other = Signature.parse(spelled(point[0], s, point[1] & 1 ^ 1))

    assert curve.recovered(digest, point[0], s, point[1] & 1) is None
    assert recover(digest, signature) is None
    assert not is_by(Address.from_raw(bytes(20)), digest, signature)
    assert recover(digest, other) is not None


@each_row(("key", "message", "r", "s"), SIGNED)
def test_known_signatures_come_out(key: int, message: str, r: str, s: str) -> None:
    assert sign(hashlib.sha256(message.encode()).digest(), key.to_bytes(32))[2:130] == r + s


@each_row("case", cases("eip712_trigger_valid"), ids=lambda case: case["id"])
def test_the_keys_of_the_vectors_make_the_signatures_of_the_vectors(case: dict[str, str]) -> None:
    key = key_of(case["key"])
    assert address_of_key(key) == case["signer"]
    assert sign(bytes.fromhex(case["digest"][2:]), key) == case["signature"]


@each_row(
    "key",
    [
        bytes(32), ORDER.to_bytes(32), (ORDER + 0xC0FFEE).to_bytes(32), b"\xff" * 32, b"", b"\xa5" * 31, b"\xa5" * 33,
        (ORDER - 1).to_bytes(32)[:-1],
    ],
    ids=["zero", "order", "above the order", "ones", "empty", "short", "long", "cut"],
)  # fmt: skip
def test_bytes_that_are_no_secret_key_are_refused_and_not_shown(key: bytes) -> None:
    for use in (address_of_key, lambda key: sign(bytes(32), key)):
        with pytest.raises(ValueError, match="private key") as refusal:
            use(key)
        said = "".join(traceback.format_exception(refusal.value)) + repr(refusal.value)
        assert "private key" in said
        for shown in (key.hex(), repr(key)[2:-1], str(int.from_bytes(key))):
            assert len(shown) < 10 or shown.lower() not in said.lower()
