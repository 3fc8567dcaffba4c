"""Chooses the form of content for a request: by `?format=` and the CAR parameters of the query, then by `Accept`.

The rules are those of the trustless gateway specification (specs.ipfs.tech/http-gateways/trustless-gateway) with
IPIP-402, 412 and 523: a parameter of the query wins over the same parameter of `Accept`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import msgspec
from msgspec import Meta

from muniment.errors import InvalidCid, InvalidParameter, NotAcceptable
from muniment.http.accept import MediaRange, media_ranges
from muniment.ipfs.cid import Cid, CidParts
from muniment.ipfs.dag import EntityBytes, Scope
from muniment.wire import ProvedText, Record

RAW_TYPE: Final = "application/vnd.ipld.raw"
CAR_TYPE: Final = "application/vnd.ipld.car"
# The empty identity CID: clients fetch it to find out whether a server is a trustless gateway.
PROBE: Final = "bafkqaaa"
# The longest file name of common file systems.
_FILENAME_LENGTH_MAX: Final = 255
_FILENAME: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f/\\]+")
_NEITHER: Final = (
    f"content is given as ?format=raw ({RAW_TYPE}) and ?format=car ({CAR_TYPE}), "
    "and a bundle's manifest.json and function.wasm under its path as they are"
)


class ContentCid(Cid):
    """The CID of content of this registry, or the identity CID with which clients probe gateways."""

    __slots__ = ()

    refuses = InvalidCid
    schema: ClassVar[dict[str, Any]] = {
        **Cid.schema,
        "pattern": f"{Cid.schema['pattern']}|^{PROBE}$",
        "description": f"{Cid.schema['description']}; or `{PROBE}`, with which clients probe gateways",
    }

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidCid` for every other codec and hash."""
        return cls(text) if text == PROBE else super().parse(text)


class EntryName(ProvedText):
    """The name of a file in a bundle. Any text is allowed; the content decides whether the file exists."""

    __slots__ = ()

    refuses = InvalidParameter
    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "enum": ["manifest.json", "function.wasm"], "examples": ["manifest.json"],
        "description": "A file of the bundle",
    }  # fmt: skip

    @classmethod
    def parse(cls, text: str) -> Self:
        """Refuses nothing."""
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
    """The form in which content is wanted."""

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
    """The chosen form. If `Accept` chose it, `located` are the query parameters that would choose the same form."""

    kind: Literal["raw", "car", "file"]
    car: CarForm = CarForm()
    located: tuple[tuple[str, str], ...] = ()


def choose_form(query: GatewayQuery, accept: Iterable[str], file_type: str | None) -> Form:
    """The form in the query, otherwise in `Accept`; `file_type` is the media type if the path leads to a file.

    Raises `NotAcceptable` for an unknown form, with the names of the known ones.
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
    """The CAR for `query` and the parameters `named` in `Accept`; None if `Accept` names an unsupported value."""
    said = {"version": query.car_version, "order": query.car_order, "dups": query.car_dups}
    for name, choices in _CAR_CHOICES.items():
        if said[name] is None and name in named and named[name] not in choices:
            return None
    entity_bytes = EntityBytes.parse(query.entity_bytes) if query.entity_bytes is not None else None
    scope = Scope.ENTITY if entity_bytes else Scope(query.dag_scope)
    return CarForm(scope, entity_bytes, (query.car_dups or named.get("dups")) == "y")
