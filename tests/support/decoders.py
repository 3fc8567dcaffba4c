"""Every decoder of external bytes and texts, with the places in the code that it covers.

`decoding_sites.sites()` finds those places. A place is listed here in one of three ways: a decoder covers it, a request
with a hostile field reaches it (`FIELDS`), or it reads trusted input (`TRUSTED`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any

import httpcore2
import msgspec

from builders import Bundle
from decoder import FIELD, KIB, PLAIN, Decoder, Frames, text_reader as _text
from guest_decoders import GUEST_DECODERS
from muniment.chains import prices
from muniment.chains.tokens import parse_token_list
from muniment.cli.client import kubo
from muniment.outgoing.streams import HEAD_BYTES_MAX as ANSWER_HEAD_BYTES_MAX, PIECE_BYTES_MAX, _Heads
from muniment.protocol.evm.sign_in import normal_form, read_sign_in
from muniment.protocol.evm.struct_types import read_types
from muniment.protocol.evm.words import WORDS, Misfit
from muniment.protocol.forms import decode_record
from muniment.protocol.functions.rules import read_manifest
from muniment.protocol.functions.wasm import check_wasm
from muniment.protocol.intents.rules import check_intent
from muniment.protocol.intents.types import AnyNewIntent
from muniment.protocol.ipfs.cid import Cid, decode_cid, decode_cid_bytes
from muniment.protocol.ipfs.dag_pb import decode_node
from muniment.protocol.ipfs.unixfs import decode_unixfs
from muniment.protocol.json_text import parse_json
from muniment.protocol.tokens import Catalogue
from muniment.protocol.triggers.amounts import money_of
from muniment.protocol.triggers.schedule import check_cron, check_delta, count_runs, last_run, next_runs, usual_delta
from muniment.protocol.triggers.typed_data import compile_input, compile_trigger
from muniment.protocol.triggers.types import SIGNER
from muniment.protocol.visible import visible
from muniment.protocol.wire import ProvedText, refusal_of
from muniment.service.auth.caller import _signed_claims, read_api_key
from muniment.service.auth.secrets import ring_of
from muniment.service.blocks import s3
from muniment.service.http import uploads
from muniment.service.http.admission import ClientAddresses
from muniment.service.http.paging import _without_place
from muniment.service.http.query import QueryReader
from muniment.service.http.reply import etag_matches
from muniment.service.http.request import content_type, media_ranges
from muniment.service.http.uploads import FormParser
from muniment.service.resources.functions import gateway
from muniment.service.resources.functions.content import byte_range
from muniment.service.resources.functions.store import FunctionQuery
from muniment.service.resources.operators import _KEY
from muniment.service.resources.triggers.listing import TriggerQuery
from muniment.service.resources.webhooks.sending import check_url, retry_after_s
from muniment.service.resources.webhooks.types import URL_LENGTH_MAX, WebhookUrl
from muniment.service.server.reader import HEAD_BYTES_MAX, RequestReader
from node_decoders import NODE_DECODERS
from tlog_decoders import TLOG_DECODERS

_USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
_NO_TOKENS = Catalogue(lambda _token, _chain: None, str)


def _kinds(kind: type[ProvedText] = ProvedText) -> Iterator[type[ProvedText]]:
    for child in kind.__subclasses__():
        yield child
        yield from _kinds(child)


def _texts() -> Iterator[Decoder]:
    """Every subclass of `ProvedText`."""
    for kind in _kinds():
        if kind.__module__.startswith("muniment.") and hasattr(kind, "schema"):  # not one that is only a parent
            yield Decoder(f"{kind.__name__}.parse", _text(kind.parse), frames=(*PLAIN, (b"0x", b""), (b"0x", b"g")))


def _wasm_section(number: int) -> Decoder:
    def read(data: bytes) -> None:
        size = len(data)
        length = bytes((size >> shift & 0x7F) | (0x80 if size >> shift > 0x7F else 0) for shift in range(0, 21, 7))
        check_wasm(b"\0asm\1\0\0\0" + bytes((number,)) + length.rstrip(b"\0") + data)

    many = b"\xff\xff\x03"
    frames = ((b"", b""), (many, b""), (b"\x80\xff\x03", b""), (b"\x01\x90\x4e", b""))
    covers = ("functions._validate validate", "functions._reason split")
    return Decoder(f"section {number} of a module", read, covers, 64 * KIB, frames, is_on_loop=False)


def _form(data: bytes) -> None:
    parser = FormParser("x")
    list(parser.feed(data))
    parser.close()


def _answer_heads(data: bytes) -> None:
    heads = _Heads()
    with suppress(httpcore2.RemoteProtocolError):
        for start in range(0, len(data), PIECE_BYTES_MAX):
            if heads.add(data[start : start + PIECE_BYTES_MAX]) is not None:
                break


def _request(name: bytes, text: str) -> Any:
    return SimpleNamespace(
        method="GET",
        header=lambda asked: text if asked == name else None,
        headers=lambda asked: [text] * (asked == name),
    )


def _trigger_with(member: str, word: str, held: Callable[[str], object]) -> Callable[[bytes], object]:
    encoder = compile_trigger([("config", "Config")], [(member, word)], compile_input({"Input": []}))
    return lambda data: encoder.struct_hash({"config": {member: held(data.decode("latin-1"))}})


def _intent(text: bytes) -> object:
    new: AnyNewIntent = decode_record(parse_json(text), AnyNewIntent)
    return check_intent(new, None, protocol="Mimic", chains={}, now_ms=0)


def _imported(data: bytes) -> None:
    try:
        kubo.check_imported(data, _ROOTS, kubo.reason)
    except kubo.NotPinned as error:
        raise ValueError(str(error)) from error


def _encode_words(text: str) -> None:
    for encode in WORDS.values():
        try:
            encode(text)
        except Misfit:
            continue


def _asked(**members: Any) -> Any:
    return SimpleNamespace(**members)


def _ignore(_: object) -> None:
    return


_PROXIED = ClientAddresses((ip_network("0.0.0.0/0"), ip_network("::/0")))
_INTENT = json.dumps(
    {
        "op": 1,
        "user": "0x" + "11" * 20,
        "settler": "0x" + "22" * 20,
        "nonce": "0x" + "33" * 32,
        "deadline": "1795204080",
        "data": "0x",
        "maxFees": [],
        "events": [],
        "configSig": "0x" + "44" * 65,
        "minValidations": 1,
    }
).encode()
_MANIFEST = Bundle().manifest
_TOKENS = b'{"name":"x","timestamp":"2026-01-01T00:00:00Z","version":{"major":1,"minor":0,"patch":0},"tokens":['
_TOKEN = b'{"chainId":1,"address":"0x%s","decimals":18,"symbol":"A","name":"A","logoURI":"' % (b"11" * 20)
_PART = b'--x\r\nContent-Disposition: form-data; name="file"; filename="manifest.json"'
_SIGN_IN = b" wants you to sign in with your Ethereum account:\n"
_SIGNED_IN = (
    b"0x" + b"11" * 20 + b"\n\n\nURI: a:\nVersion: 1\nChain ID: 1\nNonce: 12345678\nIssued At: 2026-11-20T19:48:00Z"
)
_ROOTS = kubo.spellings(Cid.parse("QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4"))
_RING = ring_of((bytes(range(32)),))

JSON_FRAMES: Frames = ((b"", b""), (b"[", b"]"), (b'["', b"]"), (b'{"a":"', b""), (b'{"a":{', b"}}"))

DECODERS: tuple[Decoder, ...] = (
    *_texts(),
    *TLOG_DECODERS,
    *GUEST_DECODERS,
    *NODE_DECODERS,
    Decoder(
        "heads of an answer",
        _answer_heads,
        ("outgoing._HEAD_END compile", "outgoing._INFORMATIONAL compile"),
        ANSWER_HEAD_BYTES_MAX,
        (*PLAIN, (b"HTTP/1.1 103 x\r\n", b"\r\n\r\n"), (b"HTTP/1.1 200 x\r\n", b"\n")),
    ),
    Decoder(
        "JSON",
        parse_json,
        (
            "json_text.parse_json itself",
            "json_text._outside_strings split",
            "json_text._decoder Decoder",
            "json_text._HALF_PAIR compile",
            "json_text._repeated_name loads",
            "http._body_source.source parse_json",
            "evm._value parse_json",
        ),
        frames=JSON_FRAMES,
    ),
    Decoder("JSON that names its double", lambda data: parse_json(b'{"a":1,"a":1,"b":' + data), size=16 * KIB),
    Decoder(
        "manifest.json",
        read_manifest,
        ("functions._read_object parse_json", "functions._INPUT_NAME compile", "functions._INPUT_TYPE compile"),
        frames=(
            (_MANIFEST[:-1] + b',"abis":{"', b'":""}}'),
            (b'{"name":"A","version":"', b'"}'),
            (b'{"inputs":{"', b'":"bool"}}'),
            (b'{"inputs":{"a":"', b'"}}'),
        ),
    ),
    Decoder(
        "an intent",
        _intent,
        ("forms.decode_record itself", "forms.decode_record convert", "intents._milliseconds fromisoformat"),
        frames=(
            (_INTENT.replace(b'"0x", "max', b'"0x').split(b"Fees")[0], b""),
            *((_INTENT.split(member)[0] + member + b'": "0x', b'"}') for member in (b"data", b"configSig", b"nonce")),
            (_INTENT[:-1] + b',"logs":[{"level":"info","data":"', b'"}]}'),
            (_INTENT[:-1] + b',"logs":[{"level":"info","data":"x","createdAt":"', b'"}]}'),
        ),
    ),
    Decoder(
        "refusal_of",
        _text(lambda text: refusal_of(msgspec.ValidationError(text))),
        ("wire._MISSING compile", "wire._pointer findall"),
        frames=(*PLAIN, (b"a - at `$", b"`"), (b"Object missing required field `", b"")),
        size=4 * KIB,  # a path is as deep as JSON may be, and has names of ours
    ),
    Decoder(
        "Accept",
        _text(lambda text: media_ranges([text])),
        ("http._ELEMENT compile", "http._PART compile", "http._QUALITY compile", "http._VALUE compile"),
        size=FIELD,
    ),
    Decoder(
        "Range",
        _text(lambda text: byte_range(_request(b"range", text), '""', 100)),
        ("functions._RANGE compile", "functions._RANGE_SPEC compile", "functions.byte_range split"),
        size=FIELD,
        frames=(*PLAIN, (b"bytes=", b""), (b"bytes=", b"!")),
    ),
    Decoder(
        "X-Forwarded-For",
        _text(lambda text: _PROXIED.address(_asked(peer="127.0.0.1", headers=lambda _: [text]))),
        ("http._forwarded split", "http._read ip_address", "limits._parsed ip_address"),
        size=FIELD,
    ),
    Decoder(
        "Cache-Control",
        _text(lambda text: gateway._only_if_cached(_request(b"cache-control", text))),
        ("functions._only_if_cached split",),
        size=FIELD,
    ),
    Decoder(
        "Content-Type of JSON",
        _text(lambda text: content_type(_request(b"content-type", text), "application/json", "")),
        ("http._ESCAPED compile",),
        size=FIELD,
        frames=(*PLAIN, *((b"application/json" + each, b"!") for each in (b"", b";", b"; charset=", b'; charset="'))),
    ),
    Decoder(
        "Content-Type of a form",
        _text(lambda text: uploads._boundary(_request(b"content-type", text))),
        ("http._BOUNDARY compile",),
        size=FIELD,
        frames=tuple((b"multipart/form-data" + each, b"!") for each in (b"", b";", b"; boundary=", b'; boundary="')),
    ),
    Decoder(
        "a connection",
        lambda data: RequestReader(_asked(peer="", is_full=False, begin=_ignore, refuse=_ignore)).feed(data),
        ("http.RequestReader._parse itself",),
        size=HEAD_BYTES_MAX,
        frames=(*PLAIN, (b"GET ", b""), (b"GET /", b" HTTP/1.1"), (b"FOO /", b""), (b"GET / HTTP/1.1\r\n", b"")),
    ),
    Decoder("If-None-Match", _text(lambda text: etag_matches(text, '"a"')), ("http.etag_matches split",), size=FIELD),
    Decoder(
        "x-api-key",
        _text(lambda text: read_api_key(_RING, text)),
        ("auth._KEY compile",),
        size=FIELD,
        frames=(*PLAIN, (b"mnk_", b"")),
    ),
    Decoder("x-operator-key", _text(_KEY.fullmatch), ("operators._KEY compile",), FIELD, (*PLAIN, (b"mno_", b""))),
    Decoder(
        "a token",
        _text(lambda text: _signed_claims(_RING, text)),
        ("auth._TOKEN compile", "auth._signed_claims decode", "auth._signed_claims get_unverified_header"),
        size=FIELD,
        frames=(*PLAIN, (b"eyJ.", b""), (b"", b"." + b"a" * 86)),
    ),
    *(
        Decoder(
            f"query of {kind.__name__}",
            QueryReader(kind).read,
            (
                "http._pairs parse_qsl",
                "http._elements split",
                "http._INTEGER compile",
                "http.QueryReader._read convert",
            ),
            size=FIELD,
            frames=(*PLAIN, *((each + b"=", b"") for each in b"limit cursor creator cids name sigs".split())),
        )
        for kind in (TriggerQuery, FunctionQuery)
    ),
    Decoder(
        "query of a link",
        _without_place.__wrapped__,
        ("http._without split", "http._is_named unquote_to_bytes"),
        size=FIELD,
    ),
    Decoder(
        "a form",
        _form,
        (
            "http.FormParser.__init__ MultipartParser",
            "http.FormParser.__init__ compile",
            "http._DISPOSITION compile",
            "http._EXTENDED compile",
            "http._extended_text unquote_to_bytes",
            "http._part findall",
        ),
        frames=(
            *PLAIN,
            (_PART, b""),
            (_PART, b"\r\n\r\n"),
            (_PART + b"\r\n\r\n", b"\r\n--x--"),
            (_PART + b"; filename*=utf-8''", b"\r\n\r\n"),
            (_PART[:-15], b""),
            (b"--x\r\nContent-Disposition: form-data", b""),
            (b"--x\r\n", b""),
            (b"\r\n--x", b"\r\n--x--"),
        ),
    ),
    *(_wasm_section(number) for number in range(12)),
    Decoder(
        "a module", check_wasm, frames=(*PLAIN, (b"\0asm\1\0\0\0", b""), (b"\0asm\1\0\0\0\0", b"")), is_on_loop=False
    ),
    Decoder(
        "a CID",
        _text(decode_cid),
        (
            "ipfs.decode_cid itself",
            "ipfs.decode_cid_bytes itself",
            "ipfs._V0_TEXT compile",
            "ipfs._V1_TEXT compile",
            "ipfs.decode_varint itself",
        ),
        frames=(*PLAIN, (b"b", b""), (b"Qm", b"")),
    ),
    Decoder("a binary CID", decode_cid_bytes),
    Decoder(
        "a block as dag-pb",
        decode_node,
        (
            "ipfs.decode_node itself",
            "ipfs._decode_node itself",
            "ipfs._decode_link itself",
            "ipfs.decode_fields itself",
        ),
        frames=(*PLAIN, (b"\x12\x00", b""), (b"\n\x00", b"")),
        is_on_loop=False,
    ),
    Decoder(
        "a block as UnixFS",
        decode_unixfs,
        ("ipfs.decode_unixfs itself", "ipfs._decode_unixfs itself"),
        frames=(*PLAIN, (b"\x08\x02", b""), (b"\x18\x02\x20\x01", b"")),
        is_on_loop=False,
    ),
    Decoder(
        "a cron expression",
        _text(
            lambda text: (
                check_cron(text),
                next_runs(text, 0, 5),
                last_run(text, 0),
                count_runs(text, 0, 60_000),
                usual_delta(text),
            )
        ),
        (
            "triggers._FIELDS compile",
            "triggers._ITEM compile",
            "triggers._LAST_WEEKDAY compile",
            "triggers._expand split",
            "triggers._walked CronSim",
            "triggers.usual_delta split",
            "triggers.last_runs CronSim",
            "triggers.count_runs split",
            "triggers._numbers split",
        ),
        frames=(*PLAIN, (b"* * * * ", b""), (b"", b" * * * *"), (b"0 0 29 2 ", b"")),
    ),
    Decoder("a delta", _text(check_delta), ("triggers._DELTA compile",), frames=(*PLAIN, (b"1", b"d"))),
    *(
        Decoder(
            f"{member} of typed data",
            _trigger_with(member, word, held),
            ("triggers._DECIMAL compile", "triggers._FRACTION compile", "triggers._TOPIC compile"),
        )
        for member, word, held in (
            ("chainId", "uint256", str),
            ("contract", "string", str),
            ("topics", "string[][]", lambda text: [[text]]),
            ("spent", "TokenAmount", lambda text: {"token": {"address": SIGNER, "chainId": 1}, "amount": text}),
        )
    ),
    Decoder(
        "a value of typed data",
        _text(_encode_words),
        ("evm._INTEGER compile", "evm._BYTES compile", "evm._fixed_bytes compile"),
        frames=(*PLAIN, (b"0x", b""), (b"1", b"")),
        size=64 * KIB,
    ),
    Decoder(
        "a type of typed data",
        _text(lambda text: read_types({"A": [{"name": "x", "type": text}]}, "A")),
        ("evm._DIMENSION compile",),
        frames=(*PLAIN, (b"uint8", b""), (b"uint8", b"]")),
    ),
    Decoder(
        "a name of typed data",
        _text(lambda text: read_types({text: [{"name": text, "type": "bool"}]}, text)),
        ("evm._IDENTIFIER compile", "evm._BUILTIN compile"),
        frames=(*PLAIN, (b"uint", b"")),
    ),
    Decoder("a text that is shown", _text(visible), ("visible._EMPTY compile",)),
    Decoder(
        "the name of an input that may be an amount",
        _text(lambda text: money_of({text: "1", "token": _USDC}, {text: "uint256", "token": "address"}, _NO_TOKENS)),
        ("triggers._WORD compile",),
        frames=(*PLAIN, (b"amount", b"")),
    ),
    Decoder(
        "the URL of a log-in in words",
        _text(normal_form),
        (
            "evm.normal_form urlsplit",
            "evm.normal_form unquote_to_bytes",
            "evm.normal_form sub",
            "evm.normal_form split",
        ),
        size=2_048,  # that of the whole text
        frames=(*PLAIN, (b"https://registry.example.org/", b"")),
    ),
    Decoder(
        "a log-in in words",
        _text(read_sign_in),
        (
            "evm.read_sign_in split",
            "evm._SCHEME compile",
            "evm._USER compile",
            "evm._HOST_AND_PORT compile",
            "evm._PATH compile",
            "evm._QUERY compile",
            "evm._STATEMENT compile",
            "evm._TIME compile",
            "evm._matches compile",
        ),
        frames=(
            *PLAIN,
            (b"", _SIGN_IN),
            (b"a" + _SIGN_IN + b"0x" + b"11" * 20 + b"\n\n", b"\n\nURI: "),
            *((b"a" + _SIGN_IN + b"0x" + b"11" * 20 + b"\n\n\nURI: " + begin, b"") for begin in (b"", b"a:", b"a://")),
            (b"a" + _SIGN_IN + _SIGNED_IN, b""),
            (b"a" + _SIGN_IN + _SIGNED_IN + b"\nResources:", b""),
            (b"a" + _SIGN_IN + _SIGNED_IN.rstrip(b"Z") + b".", b"Z"),
        ),
        size=4 * KIB,  # a message has at most half of it
    ),
    Decoder("the name of an object in a bucket", _text(s3._OBJECT.fullmatch), ("blocks._OBJECT compile",)),
    Decoder("an error of an S3 server", _text(s3._symptom), ("blocks._STATUS compile",)),
    Decoder(
        "an import by an IPFS node",
        _imported,
        (),
        frames=(*JSON_FRAMES, (b'{"Root":{"Cid":{"/":"', b'"}}}'), (b'{"Message":"', b'"}')),
    ),
    Decoder("an error of an IPFS node", lambda data: kubo.reason(kubo.message(data)), (), frames=JSON_FRAMES),
    Decoder(
        "the URL of a receiver",
        _text(lambda text: check_url(WebhookUrl.parse(text), allow_private=False)),
        (
            "webhooks.check_url urlsplit",
            "webhooks.check_url ip_address",
            "webhooks._fault_of split",
            "webhooks._fault_of urlsplit",
            "webhooks._URL compile",
            "webhooks._ODD compile",
            "webhooks._ODD_IN_HOST compile",
        ),
        URL_LENGTH_MAX,
        (*PLAIN, (b"https://", b""), (b"https://[", b"]/"), (b"https://a/", b"")),
    ),
    Decoder("the Retry-After of a receiver", _text(lambda text: retry_after_s(text, 0)), ()),
    Decoder(
        "an answer of a price API",
        prices._answers,
        ("evm._answers parse_json", "evm._price convert"),
        frames=((b'{"coins":{"', b'":{}}}'), (b'{"coins":{', b"}}")),
    ),
    Decoder(
        "a token list",
        parse_token_list,
        (
            "evm.parse_token_list itself",
            "evm.parse_token_list parse_json",
            "evm.parse_token_list convert",
            "evm._check_time fromisoformat",
            "evm._DATE_TIME compile",
            "evm._BASE58 compile",
            "evm._LOGO compile",
        ),
        frames=((_TOKENS + _TOKEN, b'"}]}'), (_TOKENS.replace(b"2026-01-01T00:00:00Z", b"@").split(b"@")[0], b'"}')),
        is_on_loop=False,
    ),
)

# Fields of a request, each with a target that heeds it, and what is reached by no decoder above.
FIELDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "accept": ("/ipfs/bafkqaaa", ()),
    "authorization": ("/users/api-key", ()),
    "if-none-match": ("/ipfs/bafkqaaa?format=raw", ()),
    "if-range": ("/ipfs/bafkqaaa?format=raw", ()),
    "range": ("/ipfs/bafkqaaa?format=raw", ()),
    "traceparent": ("/triggers", ("tracing._TRACEPARENT compile",)),
    "tracestate": ("/triggers", ("tracing._ENTRY compile", "tracing._state split", "log_lines._HIDDEN compile")),
    "x-auth-token": ("/users/api-key", ()),
    "x-request-id": ("/triggers", ("http._REQUEST_ID compile",)),
}
TARGETS: dict[str, tuple[str, ...]] = {
    "/": ("http.Router._matching split", "http.Request.path_text unquote_to_bytes", "console._WORD compile"),
    **dict.fromkeys(("/triggers/", "/functions/", "/intents/", "/ipfs/", "/errors/", "/console/"), ()),
    **dict.fromkeys(("/triggers?", "/functions?", "/intents?", "/ipfs/bafkqaaa?"), ()),
    "/console/triggers?": (
        "console.asked split",
        "console.read_query split",
        "console._api_parameter unquote_to_bytes",
        "console.milliseconds_of fromisoformat",
        "console.is_later_page split",
        "console.live split",
        "console._without_place split",
        "console._is_oldest_first split",
        "console.filter_form parse_qsl",
    ),
    "/console/account?address=": ("console.account_page parse_qs",),
    "/console/triggers/new?": ("console.wizard_page parse_qsl",),
    "/console/find?q=": (
        "console.find parse_qs",
        "console.find split",
        "console.find unquote",
        "console._PARTS compile",
        "console._HEX compile",
    ),
}

# Rooms whose input is the operator's own. What a client reads is timed in test_client_{hostile,faults}.py.
TRUSTED_ROOMS = frozenset({"cli", "client", "file_members", "settings", "storage"})
TRUSTED: dict[str, frozenset[str]] = {
    "options": frozenset(
        {
            "evm.is_loopback ip_address",
            "evm.is_loopback urlsplit",
            "environment._OF_KUBERNETES compile",
            "evm._EVENT compile",
            "evm._TUPLE compile",
        }
    ),
    "an address": frozenset({"health._PLACE compile", "health.parse_place ip_address", "health.parse_place itself"}),
    "a record that was checked when it was stored": frozenset(
        {
            "console.decoded decode",
            "console.intent decode",
            "triggers.schedule_in_words split",
            "functions._decoded decode",
            "intents._decoder Decoder",
            "webhooks._types_decoder Decoder",
            "webhooks._filters_decoder Decoder",
            "relayer.Content.read parse_json",
            "relayer._execute_all split",
            "relayer.Maker.of split",  # texts of at most 100 characters
            "relayer.LoggedEnds.read decode",
            "runs._blocks_decoder Decoder",
            "triggers._decoder Decoder",
            "functions.find_inputs decode",
            "triggers.deactivate_triggers.deactivate decode",
            "log._FUNCTION_RECORD Decoder",
            "log._TRIGGER_RECORD Decoder",
            "log._CREATOR Decoder",
            "log._shown split",
            "log._state split",
            "log.Epoch.signed_at_ms split",
        }
    ),
    "a value that was checked, made by ourselves again": frozenset(
        {
            *("evm._kept decode", "feed._data decode", "wire.ms_of fromisoformat", "runs._count decode"),
            *("triggers._kept decode", "triggers.get_sign_params convert", "webhooks.ActiveHook.host urlsplit"),
        }
    ),
    "what the operator configured": frozenset(
        {
            "tls._context split",
            "operators._NAME compile",
            "auth._SECRET compile",
            "auth.parse_secrets itself",
            "auth.parse_secrets split",
            "blocks._BUCKET compile",
            "blocks._ENDPOINT compile",
            "blocks._PREFIX compile",
            "blocks._place split",
            "blocks._place urlsplit",
            "blocks.block_directory unquote",
            "blocks.block_directory urlsplit",
            "evm.StaticPrices.read loads",
            "evm.StaticPrices.read parse_json",
            "evm._BASE_URL compile",
            "evm.load_chains loads",
            "evm._explorer_url urlsplit",
            "evm.domain_of urlsplit",
            "evm.write_sign_in urlsplit",
            "evm._read convert",
            "evm._check_url urlsplit",
            "evm.TokenLists._fetch urlsplit",
            "evm.TokenLists._kept urlsplit",
            "outgoing.Exchanges.target unquote",
            "outgoing.Outgoing._request urlsplit",
            "outgoing.Exchanges.target urlsplit",
            "outgoing.CheckedConnections._resolve ip_address",
            "relayer.load_relayer_settings convert",
            "relayer.load_relayer_settings loads",
            "users._EMAIL compile",
            "tracing.traces_url urlsplit",
            "limits._FORM compile",
            "limits.parse_policies itself",
            "log.read_mark decode",
            "limits.parse_policy itself",
        }
    ),
    "text of our own: docstrings, paths, names of files": frozenset(
        {
            "http._TAG compile",
            "app._TABLE compile",
            "app._described split",
            "blocks._BLOCK_NAME compile",
            "console._CAST compile",
            "console._day split",
            "console._facts split",
            "console._witnesses split",
            "console._IMPORT compile",
            "console._LINK compile",
            "console._resolved split",
            "console.without_comments splitlines",
            "http._pieces split",
            "http._PATH_PARAMETER compile",
            "http._described sub",
            "http._prose split",
            "http._answers split",
            "http._package split",
            "http.Router.__init__ split",
            "http._pattern split",
            "http._pattern compile",
        }
    ),
    "what the system says about this process": frozenset(
        {"metrics.show_process split", "metrics._started_s split", "metrics._started_s splitlines"}
    ),
    "what a child of ours wrote, which read it as a token list": frozenset(
        {"evm._decoder Decoder", "evm.read_token_list splitlines"}
    ),
    "a file that the command line reads": frozenset({"ipfs._decode_header itself"}),
    "used by the kinds of text, which are all run": frozenset(
        {
            "wire._AMOUNT compile",
            "wire._SEMVER compile",
            "wire.decode_text itself",
            "wire.ProvedText.parse itself",
            "evm._ADDRESS compile",
            "evm._BYTES32 compile",
            "evm._HEX compile",
            "functions._FILENAME compile",
            "functions._NOT_PLAIN compile",
            "intents._TRIGGER_SIG compile",
            "ipfs._ENTITY_BYTES compile",
            "ipfs.EntityBytes.parse itself",
            "http.BROKEN_ESCAPE compile",
            "http._place b64decode",
            "feed._parts b64decode",
            "feed._parts split",
            "wire.BoundedText.parse itself",
            "forms.prepare Decoder",  # of types, not of input
            "log._NUMBER compile",
            "webhooks._ID compile",
        }
    ),
}


def listed() -> set[str]:
    """Every listed place."""
    by_decoders = {site for decoder in DECODERS for site in decoder.covers}
    by_requests = {
        site for sites in (*(reached for _, reached in FIELDS.values()), *TARGETS.values()) for site in sites
    }
    return by_decoders.union(by_requests, *TRUSTED.values())


def kinds_of_text() -> set[str]:
    """Names of the `parse` methods of proved texts; each is a decoder without a row."""
    return {f"{kind.__qualname__}.parse itself" for kind in _kinds()}
