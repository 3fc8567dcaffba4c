"""The decoders of what nodes of chains answer."""

from __future__ import annotations

from decoder import PLAIN, Decoder, text_reader
from muniment.chains import multicall
from muniment.chains.sentences import sentence_of
from muniment.chains.verdicts import fault_of, is_of_batch
from muniment.operate.watch.events import event_in
from muniment.protocol.evm import abi
from muniment.protocol.evm.hex import data_of, quantity_of

NODE_DECODERS = [
    Decoder("data of a node", text_reader(data_of), (), frames=(*PLAIN, (b"0x", b""), (b"0x", b"g"))),
    Decoder(
        "a quantity of a node", text_reader(quantity_of), ("evm._QUANTITY compile",), frames=(*PLAIN, (b"0x", b""))
    ),
    Decoder(
        "ABI data",
        lambda data: abi.decode((abi.ListOf(abi.BYTES), abi.ListOf(abi.UINT256)), data),
        ("evm.decode itself",),
        frames=(*PLAIN, (bytes(31) + b"\x40" + bytes(31) + b"\x40" + bytes(30) + b"\x10\x00", b"")),
    ),
    Decoder(
        "an answer of Multicall3",
        lambda data: multicall.decode_aggregate3(data, 4_096),
        ("evm.decode_aggregate3 itself",),
        frames=(*PLAIN, (bytes(31) + b"\x20" + bytes(30) + b"\x10\x00", b"")),
    ),
    Decoder(
        "an answer of the one-shot reader",
        lambda data: multicall.decode_one_shot(data, 300),
        ("evm.decode_one_shot itself",),
    ),
    Decoder(
        "a log of a node",
        lambda data: event_in({"topics": ["0x" + data.decode("latin-1")] * 2, "data": data.decode("latin-1")}),
        (),
    ),
    Decoder(
        "an error of a node",
        text_reader(
            lambda text: (fault_of(0, text, text), is_of_batch(text), sentence_of(text, "https://u:k3y@a.example/k3y0"))
        ),
        (
            "evm._METHOD compile",
            "evm._WORD compile",
            "evm._REVERTED compile",
            "evm._REVERTED_ANYWHERE compile",
            "evm._letters sub",
            "evm._URL compile",
            "evm._BETWEEN compile",
            "evm._secrets_of compile",
            "evm._secrets_of split",
            "evm._secrets_of unquote",
            "evm._secrets_of unquote_plus",
            "evm._secrets_of urlsplit",
            "evm.sentence_of split",
        ),
        frames=(*PLAIN, (b"vm exception: ", b""), (b"execution reverted ", b""), (b"https://", b"")),
    ),
]
