"""The decoders of the sandbox: what a function passes to its imports, and the metadata of its module."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from decoder import KIB, Decoder
from muniment.guest.abi import Abi
from muniment.guest.inputs import text_of
from muniment.guest.module import check_bytes
from muniment.guest.outcomes import Stop
from muniment.guest.questions import parse_question
from muniment.guest.types import GuestInput
from muniment.relayer.runner.operations import CALL, TRANSFER, Refused, operation_data


def _stopped(read: Callable[[str], object]) -> Callable[[bytes], object]:
    def reading(data: bytes) -> None:
        with suppress(Stop):
            read(data.decode("latin-1"))

    return reading


def _metadata(data: bytes) -> None:
    section = b"\x0emimic-metadata" + data
    length = bytes((len(section) & 0x7F | 0x80, len(section) >> 7 & 0x7F | 0x80, len(section) >> 14))
    with suppress(Stop):
        check_bytes(b"\0asm\1\0\0\0\0" + length + section)


def _operations(data: bytes) -> None:
    """Operations as functions send them; their JSON was read before."""
    text = data.decode("latin-1")
    transfer = {"token": text, "amount": text, "recipient": text}
    calls = [{"target": "0x" + "11" * 20, "data": "0x" + text, "value": "1"}] * 2
    for op_type, body in ((TRANSFER, {"chainId": 1, "transfers": [transfer]}), (CALL, {"chainId": 1, "calls": calls})):
        with suppress(Refused):
            operation_data(op_type, body)


GUEST_DECODERS: tuple[Decoder, ...] = (
    Decoder(
        "a question of a function",
        _stopped(lambda text: parse_question("evmCall", text)),
        ("guest.parse_question itself", "guest.parse_object itself", "guest.parse_object parse_json"),
        frames=((b"", b""), (b'{"to":"', b'"}'), (b'{"tokens":[', b"]}"), (b'{"', b'":1}')),
        is_on_loop=False,
    ),
    Decoder(
        "values that a function encodes",
        _stopped(lambda text: Abi().encode(text)),
        ("guest._json parse_json", "guest._HEX compile", "guest._INTEGER compile", "guest._DIMENSION compile"),
        frames=(
            (b"", b""),
            (b'[{"abiType":"bytes","value":"', b'"}]'),
            (b'[{"abiType":"uint256","value":"', b'"}]'),
            (b'[{"abiType":"()[]","value":"[', b']"}]'),
            (b'[{"abiType":"', b'","value":"[]"}]'),
        ),
        size=64 * KIB,
        is_on_loop=False,
    ),
    Decoder(
        "data that a function decodes",
        _stopped(lambda text: Abi().decode(text)),
        (
            "guest.Abi.decode itself", "guest.Abi._decode itself", "guest._parse itself", "guest._parse_tuple itself",
            "guest._parse_word itself", "guest._WORD compile",
        ),
        frames=(
            (b'{"abiType":"uint256[]","value":"0x' + b"00" * 31 + b"20", b'"}'),
            (b'{"abiType":"(bytes,string)","value":"0x', b'"}'),
            (b'{"abiType":"', b'","value":"0x"}'),
        ),
        size=64 * KIB,
        is_on_loop=False,
    ),
    Decoder(
        "metadata of a module",
        _metadata,
        ("guest._target parse_json", "guest._RELEASE compile"),
        frames=((b"", b""), (b'{"runnerTarget":"0.', b'"}'), (b'{"', b'":1}')),
        size=64 * KIB,
        is_on_loop=False,
    ),
    Decoder(
        "an input of a function",
        _stopped(lambda text: text_of("a", GuestInput("uint256", text))),
        ("guest._DIGITS compile",),
    ),
    Decoder("an operation of a function", _operations, ("relayer._decode itself",), size=128 * KIB),
)  # fmt: skip
