"""A gateway to the blocks of this registry, for clients that verify content against its CID.

It serves raw blocks and CAR files, by the trustless gateway specification
(specs.ipfs.tech/http-gateways/trustless-gateway). From the path gateway specification it takes only the two files of a
bundle. It never serves a directory listing, a page or a redirect, because strangers uploaded the content.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Meta

from muniment.protocol import errors
from muniment.protocol.errors import (
    ContentNotFound,
    DeadlineExceeded,
    Integrity,
    InvalidCid,
    InvalidParameter,
    NotAcceptable,
    NotCached,
)
from muniment.protocol.ipfs.block import GetBlock
from muniment.protocol.ipfs.car import car_header, car_section
from muniment.protocol.ipfs.cid import DAG_PB, IDENTITY, Cid, CidParts
from muniment.protocol.ipfs.dag import EntityBytes, File, Scope, open_file, walk
from muniment.protocol.ipfs.dag_pb import decode_node
from muniment.protocol.ipfs.unixfs import decode_unixfs
from muniment.protocol.wire import ProvedText, Record
from muniment.service.context import Context
from muniment.service.http.operation import operation
from muniment.service.http.reply import Headers, Ready, Streamed
from muniment.service.http.request import MediaRange, Request, media_ranges
from muniment.service.resources.functions.content import (
    FILE_HEADERS_READ,
    IMMUTABLE,
    MEDIA_TYPES,
    block_reads,
    bytes_reply,
    file_answers,
    file_reply,
    not_modified,
    piecewise,
)
from muniment.service.running.limits.costs import BLOCKS, Shed

RAW_TYPE: Final = "application/vnd.ipld.raw"
CAR_TYPE: Final = "application/vnd.ipld.car"
# The empty identity CID: clients fetch it to detect a trustless gateway.
PROBE: Final = "bafkqaaa"
# The bytes that a field value may keep of a raw query; a server passes no others (RFC 9110 section 5.5).
_PRINTABLE: Final = bytes(range(0x21, 0x7F)).decode()
# The longest file name of common file systems.
_FILENAME_LENGTH_MAX: Final = 255
_FILENAME: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f/\\]+")
_NEITHER: Final = (
    f"content is available as ?format=raw ({RAW_TYPE}) or ?format=car ({CAR_TYPE}); "
    "the path of a bundle's manifest.json or function.wasm gives the file"
)


class ContentCid(Cid):
    """The CID of content of this registry, or the identity CID that probes gateways."""

    __slots__ = ()

    refuses = InvalidCid
    schema: ClassVar[dict[str, Any]] = {
        **Cid.schema,
        "pattern": f"{Cid.schema['pattern']}|^{PROBE}$",
        "description": f"{Cid.schema['description']}; or `{PROBE}`, with which clients probe gateways",
    }

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidCid` for other codecs and hashes."""
        return cls(text) if text == PROBE else super().parse(text)


class EntryName(ProvedText):
    """The name of a file in a bundle; any text is accepted, since the content determines which files exist."""

    __slots__ = ()

    refuses = InvalidParameter
    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "enum": ["manifest.json", "function.wasm"], "examples": ["manifest.json"],
        "description": "A file of the bundle",
    }  # fmt: skip

    @classmethod
    def parse(cls, text: str) -> Self:
        """Accepts any text."""
        return cls(text)


class Filename(ProvedText):
    """A name to save content under."""

    __slots__ = ()

    refuses = InvalidParameter
    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "minLength": 1,
        "maxLength": _FILENAME_LENGTH_MAX,
        "pattern": r"^[^\u0000-\u001f\u007f-\u009f/\\]+$",
        "description": "The name to save the answer under, in Content-Disposition",
        "examples": ["hello.wasm"],
    }

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidParameter` for a path, and for characters that would end the header field."""
        if len(text) > _FILENAME_LENGTH_MAX or not _FILENAME.fullmatch(text):
            raise InvalidParameter(
                f"a file name has 1 to {_FILENAME_LENGTH_MAX} characters, no slash, no control character"
            )
        return cls(text)


class EntityRange(ProvedText):
    """`from:to` of a file's bytes, both ends included."""

    __slots__ = ()

    refuses = InvalidParameter
    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": r"^-?[0-9]{1,19}:(\*|-?[0-9]{1,19})$",
        "description": "CAR: only the blocks with these bytes of the file, `from:to`; negative counts from the end",
        "examples": ["0:1023"],
    }

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidParameter`."""
        EntityBytes.parse(text)
        return cls(text)


class GatewayQuery(Record, frozen=True):
    """The requested form of content."""

    format: (
        Annotated[
            str,
            Meta(
                description="Takes precedence over Accept", examples=["raw"], extra_json_schema={"enum": ["raw", "car"]}
            ),
        ]
        | None
    ) = None
    filename: Filename | None = None
    car_version: Annotated[Literal[1], Meta(description="CAR: version of the container")] | None = msgspec.field(
        name="car-version", default=None
    )
    car_order: (
        Annotated[Literal["dfs", "unk"], Meta(description="CAR: order of the blocks, which is always depth first")]
        | None
    ) = msgspec.field(name="car-order", default=None)
    car_dups: Annotated[Literal["y", "n"], Meta(description="CAR: whether repeated blocks are sent again")] | None = (
        msgspec.field(name="car-dups", default=None)
    )
    dag_scope: Annotated[
        Literal["block", "entity", "all"],
        Meta(description="CAR: only the block at the path, the file or directory, or everything below"),
    ] = msgspec.field(name="dag-scope", default="all")
    entity_bytes: EntityRange | None = msgspec.field(name="entity-bytes", default=None)


@dataclass(frozen=True, slots=True)
class CarForm:
    """The content of a CAR. The order is always depth first, which also satisfies `unk` (unknown)."""

    scope: Scope = Scope.ALL
    entity_bytes: EntityBytes | None = None
    duplicates: bool = False

    @property
    def media_type(self) -> str:
        """The media type, with the parameters of this CAR."""
        return f"{CAR_TYPE}; version=1; order=dfs; dups={'y' if self.duplicates else 'n'}"

    def etag(self, root: CidParts, path: Sequence[str]) -> str:
        """A tag for each selection of blocks; weak, because the order of the blocks may differ."""
        selection = hashlib.sha256(repr((tuple(path), self)).encode()).hexdigest()[:16]
        return f'W/"{root.text}.car.{selection}"'


@dataclass(frozen=True, slots=True)
class Form:
    """The chosen form. If `Accept` chose it, `located` are the query parameters that choose the same form."""

    kind: Literal["raw", "car", "file"]
    car: CarForm = CarForm()
    located: tuple[tuple[str, str], ...] = ()


def choose_form(query: GatewayQuery, accept: Iterable[str], file_type: str | None) -> Form:
    """The form by the query, else by `Accept`; `file_type` is the media type if the path leads to a file.

    Raises `NotAcceptable` for an unknown form, naming the known ones.
    """
    ranges = [each for each in media_ranges(accept) if each.quality > 0]
    if query.format is not None:
        named = next((each.parameters for each in ranges if each.kind == CAR_TYPE), dict[str, str]())
        if query.format == "raw":
            return Form("raw")
        if query.format == "car" and (car := _car_form(query, named)):
            return Form("car", car)
        raise NotAcceptable(_NEITHER if query.format != "car" else "a CAR has version=1, order=dfs and dups=y or n")
    if file_type is not None and not ranges:
        return Form("file")
    for each in ranges:
        if form := _accepted(each, query, file_type):
            return form
    raise NotAcceptable(_NEITHER)


def _accepted(wanted: MediaRange, query: GatewayQuery, file_type: str | None) -> Form | None:
    if wanted.kind == RAW_TYPE:
        return Form("raw", located=(("format", "raw"),))
    if wanted.kind == CAR_TYPE and (car := _car_form(query, wanted.parameters)):
        named = [(f"car-{name}", value) for name, value in wanted.parameters.items() if name in _CAR_CHOICES]
        return Form("car", car, (("format", "car"), *named))
    return Form("file") if file_type is not None and wanted.kind in {file_type, "application/*", "*/*"} else None


_CAR_CHOICES: Final = {"version": {"1"}, "order": {"dfs", "unk"}, "dups": {"y", "n"}}


def _car_form(query: GatewayQuery, named: dict[str, str]) -> CarForm | None:
    """The CAR for `query` and the parameters `named` in `Accept`; None for an unsupported value in `Accept`."""
    given = {"version": query.car_version, "order": query.car_order, "dups": query.car_dups}
    for name, choices in _CAR_CHOICES.items():
        if given[name] is None and name in named and named[name] not in choices:
            return None
    entity_bytes = EntityBytes.parse(query.entity_bytes) if query.entity_bytes is not None else None
    scope = Scope.ENTITY if entity_bytes else Scope(query.dag_scope)
    return CarForm(scope, entity_bytes, (query.car_dups or named.get("dups")) == "y")


# A CAR has about the size of its bundle, but crafted blocks that repeat their links could make one of almost any size.
# The limit is the size of this many of the largest bundles.
_CAR_BUNDLES_MAX: Final = 16
# Characters that end a quoted string, and characters that browsers decode in it by mistake (RFC 6266 appendix D).
_NOT_PLAIN: Final = re.compile(r'[^ -~]|["%]')

_REFUSES: Final = (
    errors.ContentNotFound, errors.NotAcceptable, errors.NotCached, errors.RangeNotSatisfiable,
    errors.Integrity, errors.StorageUnavailable, errors.DeadlineExceeded,
)  # fmt: skip
_HEADERS_READ: Final = {
    **FILE_HEADERS_READ,
    "accept": f"{RAW_TYPE} or {CAR_TYPE}, the latter with version, order and dups; `format` takes precedence",
    "cache-control": "only-if-cached: 412 instead of 404",
}
_HEADERS_SENT: Final = {
    "x-ipfs-path": "The requested path",
    "x-ipfs-roots": "The CIDs along the path, separated by commas",
    "content-location": "The URL that needs no `Accept`, relative to the request's",
    "content-disposition": "A file name to save it under",
}


@operation(
    "GET", "/ipfs/{cid}", cost=BLOCKS, sheds=Shed.MIDDLE,
    refuses=_REFUSES, answers=file_answers(RAW_TYPE, CAR_TYPE, also=_HEADERS_SENT), headers_read=_HEADERS_READ,
)  # fmt: skip
async def get_content(
    context: Context, request: Request, cid: ContentCid, query: GatewayQuery
) -> Ready[bytes] | Streamed:
    """Read a block, or the blocks below it.

    As a raw block or as a CAR file, by `format` or by `Accept`. The client verifies the bytes against the CID. A
    damaged block in the middle of a CAR file aborts the connection.
    """
    return await _content(_Target(context, request, cid.parts), query)


@operation(
    "GET", "/ipfs/{cid}/{name}", cost=BLOCKS, sheds=Shed.MIDDLE,
    refuses=_REFUSES, answers=file_answers(*MEDIA_TYPES.values(), RAW_TYPE, CAR_TYPE, also=_HEADERS_SENT),
    headers_read=_HEADERS_READ,
)  # fmt: skip
async def get_entry(
    context: Context, request: Request, cid: ContentCid, name: EntryName, query: GatewayQuery
) -> Ready[bytes] | Streamed:
    """Read a file of a bundle.

    As a file, as its root block, or as a CAR file of the blocks that prove it.
    """
    return await _content(_Target(context, request, cid.parts, (str(name),)), query)


OPERATIONS = (get_content, get_entry)


@dataclass(frozen=True, slots=True)
class _Target:
    """The content that a request names: the CID of a root, in the client's version, and the path from there."""

    context: Context
    request: Request
    root: CidParts
    path: tuple[str, ...] = ()

    @property
    def get_block(self) -> GetBlock:
        return self.context.blocks.get

    def headers(self, query: GatewayQuery, form: Form, passed: Sequence[CidParts]) -> Headers:
        """The header fields of every form; `passed` are the CIDs along the path."""
        headers = [
            (b"vary", b"Accept"),
            (b"x-ipfs-path", "/".join(("/ipfs", self.root.text, *self.path)).encode()),
            (b"x-ipfs-roots", ",".join(cid.text for cid in passed).encode()),
        ]
        if form.located:
            headers.append((b"content-location", f"?{self._located(query, form)}".encode()))
        if form.kind != "file":
            name = f"{passed[-1].text}.{'bin' if form.kind == 'raw' else 'car'}"
            headers.append((b"content-disposition", _disposition("attachment", query.filename or name)))
        elif query.filename:
            headers.append((b"content-disposition", _disposition("inline", query.filename)))
        return tuple(headers)

    def _located(self, query: GatewayQuery, form: Form) -> str:
        """The request's query, with the parameters that choose the same form without `Accept`."""
        given = quote(self.request.query, safe=_PRINTABLE)
        missing = [(name, value) for name, value in form.located if getattr(query, name.replace("-", "_")) is None]
        added = urlencode(missing)
        return f"{given}&{added}" if given else added


async def _content(asked: _Target, query: GatewayQuery) -> Ready[bytes] | Streamed:
    try:
        _refuse_other_names(asked)
        file_type = MEDIA_TYPES[asked.path[0]] if asked.path else None
        form = choose_form(query, asked.request.headers(b"accept"), file_type)
        if form.kind == "raw":
            return await _raw(asked, query, form)
        if form.kind == "car":
            return await _car(asked, query, form)
        return await _file(asked, query, form)
    except ContentNotFound as error:
        if _only_if_cached(asked.request):
            raise NotCached(error.detail) from error
        raise


async def _raw(asked: _Target, query: GatewayQuery, form: Form) -> Ready[bytes] | Streamed:
    steps = await block_reads.begin(partial(_walk_path, asked.get_block, asked.root, asked.path))
    target, block = steps[-1]
    own = ((b"content-type", RAW_TYPE.encode()), (b"etag", f'"{target.text}.raw"'.encode()))
    headers = (*own, *asked.headers(query, form, [cid for cid, _ in steps]))
    return await bytes_reply(asked.request, len(block), lambda start, end: [block[start:end]], headers)


async def _car(asked: _Target, query: GatewayQuery, form: Form) -> Ready[bytes] | Streamed:
    steps = await block_reads.begin(partial(_walk_path, asked.get_block, asked.root, asked.path, is_walked=True))
    own = (
        (b"content-type", form.car.media_type.encode()),
        (b"etag", form.car.etag(asked.root, asked.path).encode()),
        (b"accept-ranges", b"none"),
        IMMUTABLE,
    )
    headers = (*own, *asked.headers(query, form, [cid for cid, _ in steps]))
    if unchanged := not_modified(asked.request, headers):
        return unchanged
    return await piecewise(asked.request, _car_pieces(asked, form.car), headers)


async def _file(asked: _Target, query: GatewayQuery, form: Form) -> Ready[bytes] | Streamed:
    file = await block_reads.begin(partial(_open, asked.get_block, asked.root, asked.path))
    return await file_reply(asked.request, file, asked.path[-1], asked.headers(query, form, [asked.root, file.cid]))


def _open(get_block: GetBlock, root: CidParts, path: Sequence[str]) -> File:
    _refuse_other_nodes(get_block, root)
    return open_file(get_block, root, path)


def _refuse_other_names(asked: _Target) -> None:
    if asked.path and asked.root.hash_code == IDENTITY:
        raise ContentNotFound("an identity CID has no files")
    if asked.path and asked.path[0] not in MEDIA_TYPES:
        raise ContentNotFound(f"a bundle has {' and '.join(MEDIA_TYPES)}, nothing else")


def _walk_path(
    get_block: GetBlock, root: CidParts, path: Sequence[str], *, is_walked: bool = False
) -> list[tuple[CidParts, bytes]]:
    """The blocks from `root` to the end of `path`. For a walk, `root` must be a node of the kind in its CID."""
    if path or is_walked:
        _refuse_other_nodes(get_block, root)
    if root.hash_code == IDENTITY:
        return [(root, root.digest)]
    return list(walk(get_block, root, path=path, scope=Scope.BLOCK, duplicates=True))


def _refuse_other_nodes(get_block: GetBlock, root: CidParts) -> None:
    """Raise `ContentNotFound` for a stored block that is not of the kind in its CID.

    Any client can write the CID of a node with the hash of a leaf, which is no `Integrity` error.
    """
    if root.codec != DAG_PB:
        return
    block = get_block(root.digest)
    try:
        decode_unixfs(decode_node(block).data)
    except Integrity:
        raise ContentNotFound("the block with this hash is not a UnixFS node; request it with the codec raw") from None


def _car_pieces(asked: _Target, form: CarForm) -> Iterator[bytes]:
    settings = asked.context.settings
    bytes_left = _CAR_BUNDLES_MAX * (settings.wasm_bytes_max + settings.manifest_bytes_max)
    yield car_header([asked.root])
    for cid, block in walk(
        asked.get_block, asked.root, path=asked.path, scope=form.scope,
        entity_bytes=form.entity_bytes, duplicates=form.duplicates,
    ):  # fmt: skip
        bytes_left -= len(block)
        if bytes_left < 0:
            raise DeadlineExceeded("the CAR repeats too many blocks; request it with car-dups=n")
        yield car_section(cid, block)


def _disposition(kind: str, name: Filename | str) -> bytes:
    """`Content-Disposition` (RFC 6266), also with the name in UTF-8 if necessary."""
    plain = _NOT_PLAIN.sub("_", name)
    extended = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'{kind}; filename="{plain}"{extended}'.encode()


def _only_if_cached(request: Request) -> bool:
    """Whether the client accepts only stored content (RFC 9111 section 5.2.1.7)."""
    fields = ",".join(request.headers(b"cache-control")).split(",")
    return "only-if-cached" in {field.strip().lower() for field in fields}
