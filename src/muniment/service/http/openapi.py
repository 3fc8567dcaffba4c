"""The OpenAPI 3.1 document, made from the operations themselves, so that the two cannot differ."""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import Any, Final, Union, cast, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, UNSET
from msgspec.inspect import CustomType, StructType, type_info

from muniment.protocol import errors
from muniment.protocol.errors import NotLoggedYet, Refusal
from muniment.protocol.forms import forms_of
from muniment.protocol.wire import ProvedText, encode
from muniment.service.http.operation import Answer, Operation
from muniment.service.http.problems import EVERYWHERE, Problem, all_refusals, status_of
from muniment.service.http.reply import Ready, Stream, Streamed
from muniment.service.http.request import Request

Json = dict[str, Any]

_SCHEMA: Final = {"$ref": "#/components/schemas/Problem"}
_JSON: Final = "application/json"
_BYTES: Final = {"type": "string", "format": "binary"}
_TEXT: Final = {"type": "string"}

LISTED: Final = {
    200: Answer("A page", headers={
        "link": 'The next page as `<?…>; rel="next"` (RFC 8288), which is relative to the URL of the request; on the '
        'page of the newest rows also later rows as `<?…>; rel="prev"`',
    }),
}  # fmt: skip
# A record that may change: 304 for a client that has its present state.
_ETAG: Final = {"etag": "Identifies this state of the record (RFC 9110 section 8.8.3)"}
TAGGED: Final = {200: Answer("Done", headers=_ETAG), 304: Answer("Not modified", headers=_ETAG)}

# Header fields of many answers; an `Answer` has those of one operation.
HEADERS: Final[Mapping[str, Json]] = {
    "x-request-id": {
        "description": "Identifies the request in the service's log. The client's own id if it sent a valid one",
        "schema": {"type": "string", "maxLength": 128},
    },
    "ratelimit": {
        "description": "The remaining quota of the client (draft-ietf-httpapi-ratelimit-headers)",
        "schema": {"type": "string"},
    },
    "ratelimit-policy": {"description": "The policy of `ratelimit` (same draft)", "schema": {"type": "string"}},
    "retry-after": {
        "description": "Seconds until the client may retry (RFC 9110 section 10.2.3)",
        "schema": {"type": "integer", "minimum": 0},
    },
    "content-range": {
        "description": "The size of the content: `bytes */size` (RFC 9110 section 15.5.17)",
        "schema": {"type": "string"},
    },
    "www-authenticate": {
        "description": "The challenge that a 401 requires (RFC 9110 section 11.6.1)",
        "schema": {"type": "string"},
    },
}
_HEADER: Final = "#/components/headers/"
_RETRY: Final = "retry-after"
# A 404 that ends by itself.
_WAITED_FOR: Final = NotLoggedYet.code
_OF_EVERY_ANSWER: Final = ("x-request-id", "ratelimit", "ratelimit-policy")
_OF_STATUS: Final[Mapping[int, tuple[str, ...]]] = {
    401: ("www-authenticate",),
    416: ("content-range",),
    429: ("retry-after",),
    503: ("retry-after",),
}


def described_answer(status: int, answer: Answer, json_schema: Json | None) -> Json:
    """An answer that is no refusal; `json_schema` is that of its JSON, if there is any."""
    described: Json = {"description": answer.description, "headers": _headers(status, answer.headers)}
    kinds = answer.media_types or (() if json_schema is None else (_JSON,))
    content = {
        kind: {"schema": json_schema if kind == _JSON else _TEXT if kind.startswith("text/") else _BYTES}
        for kind in kinds
    }
    return {**described, "content": content} if content else described


def described_problems(refusals: Iterable[type[Refusal]], shared: Json) -> Json:
    """Refusals by status. What one code alone answers goes to `shared`, by its code, and is referred to."""
    by_status: defaultdict[int, list[str]] = defaultdict(list)
    for refusal in refusals:
        by_status[status_of(refusal)].append(refusal.code)
    described: Json = {}
    for status, codes in by_status.items():
        if len(codes) == 1:
            shared[codes[0]] = _problem(status, codes)
            described[str(status)] = {"$ref": f"#/components/responses/{codes[0]}"}
        else:
            described[str(status)] = _problem(status, codes)
    return described


def _problem(status: int, codes: list[str]) -> Json:
    media = {"schema": {"allOf": [_SCHEMA, {"properties": {"code": {"enum": codes}}}]}}
    return {
        "description": " · ".join(codes),
        "headers": _headers(status, {}) | ({_RETRY: {"$ref": _HEADER + _RETRY}} if _WAITED_FOR in codes else {}),
        "content": {"application/json": media, "application/problem+json": media},
    }


def _headers(status: int, own: Mapping[str, str]) -> Json:
    shared = (*_OF_EVERY_ANSWER, *_OF_STATUS.get(status, ()))
    return {
        **{name: {"description": about, "schema": {"type": "string"}} for name, about in own.items()},
        **{name: {"$ref": _HEADER + name} for name in shared},
    }


_BODY_REFUSALS: Final[tuple[type[Refusal], ...]] = (
    errors.InvalidJson, errors.InvalidBody, errors.BodyTooLarge, errors.UnsupportedMediaType, errors.RequestTimeout,
)  # fmt: skip
_REF: Final = "#/components/schemas/{name}"
_OK: Final = 200
_NO_CONTENT: Final = 204


def openapi_document(operations: Iterable[Operation], *, version: str, about: str, security: Json) -> Json:
    """The document for `operations`; `security` holds the security schemes that they name."""
    operations = list(operations)
    shapes = [shape for each in operations for shape in _shapes(each)]
    schemas, components = msgspec.json.schema_components([*shapes, Problem], schema_hook=_schema, ref_template=_REF)
    schema_of = dict(zip([repr(shape) for shape in shapes], schemas, strict=False))
    records = _records([*shapes, Problem])
    _add_texts(components, records)
    problems: Json = {}
    paths: defaultdict[str, Json] = defaultdict(dict)
    for each in operations:
        paths[each.path][each.method.lower()] = _described(each, schema_of, problems)
    named: Json = {}
    components = {name: _hoisted_below(component, named) for name, component in components.items()}
    _tell_defaults(components, records)
    components[Problem.__name__]["additionalProperties"] = True  # RFC 9457 section 3.2: what some refusals add
    return {
        "openapi": "3.1.0",
        "info": {"title": "Muniment", "version": version, "description": about, "license": _LICENSE},
        "servers": [{"url": "."}],  # relative to the document, for a proxy that serves it under a path of its own
        "tags": [
            {"name": package.rpartition(".")[2], "description": inspect.getdoc(sys.modules[package]) or ""}
            for package in dict.fromkeys(_package(each) for each in operations)
        ],
        "paths": _hoisted(dict(paths), named),
        "components": {
            "schemas": {**components, **named},
            "responses": problems,
            "headers": dict(HEADERS),
            "securitySchemes": security,
        },
        "x-error-codes": {
            refusal.code: {"status": status_of(refusal), "title": refusal.title, "meaning": inspect.getdoc(refusal)}
            for refusal in all_refusals()
        },
    }


_LICENSE: Final = {"name": "Apache-2.0", "identifier": "Apache-2.0"}


def refusals_of(each: Operation) -> list[type[Refusal]]:
    """Every refusal that an operation may answer: its own, its parameters', and those that any may."""
    found: set[type[Refusal]] = {*EVERYWHERE, *each.refuses}
    for name, kind in each.hints.items():
        if name == "body":
            found.update(_BODY_REFUSALS)
        if name != "return":
            found.update(getattr(kind, "refuses_with", ()))
            found.update(text.refuses for shape in _split(kind) for text in _texts_in(shape))
    return sorted(found, key=lambda refusal: (status_of(refusal), refusal.code))


def _texts_in(kind: Any) -> Iterator[type[ProvedText]]:
    """The proved texts that a parameter's type is made of."""
    if inspect.isclass(kind) and issubclass(kind, ProvedText):
        yield kind
    elif kind is not Request and not hasattr(kind, "from_request"):
        for info in _inside(kind):
            if isinstance(info, CustomType) and issubclass(info.cls, ProvedText):
                yield info.cls


def _inside(kind: Any) -> Iterator[msgspec.inspect.Type]:
    """`kind` and every type that it is made of, at any depth."""
    pending, seen = [type_info(kind)], set[int]()
    while pending:
        info = pending.pop()
        if id(info) in seen:
            continue
        seen.add(id(info))
        yield info
        for value in (getattr(info, slot) for slot in info.__struct_fields__):
            members = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
            for member in members:
                inner = getattr(member, "type", member)
                if isinstance(inner, msgspec.inspect.Type):
                    pending.append(inner)


def _shapes(each: Operation) -> list[Any]:
    """The types in body and answer that need a schema; of a record with several forms, each form."""
    kinds = [kind for name, kind in each.hints.items() if name == "body"] + _result_types(each)
    return [shape for kind in kinds for shape in _split(kind)]


def _split(kind: Any) -> tuple[Any, ...]:
    """The forms of a record, or of the elements of a list; another type as it is."""
    (element,) = get_args(kind) if get_origin(kind) is list else (kind,)
    return forms_of(element) or (kind,)


def _schema_of(kind: Any, schema_of: dict[str, Json]) -> Json:
    """The schema of a type: `oneOf` for a record with several forms, each of which has members of its own."""
    if get_origin(kind) is list and forms_of(get_args(kind)[0]):
        return {"type": "array", "items": _schema_of(get_args(kind)[0], schema_of)}
    if forms := forms_of(kind):
        return {"oneOf": [schema_of[repr(form)] for form in forms]}
    return schema_of[repr(kind)]


def _result_types(each: Operation) -> list[Any]:
    """The types that an operation's answers spell in JSON; content of other media types has none."""
    result = each.hints.get("return")
    kinds: tuple[Any, ...] = get_args(result) if get_origin(result) in (UnionType, Union) else (result,)
    spelt: list[Any] = [get_args(kind)[0] if get_origin(kind) is Ready else kind for kind in kinds]
    return [kind for kind in spelt if kind not in (None, type(None), bytes, Stream, Streamed)]


def _schema(kind: type[Any]) -> Json:
    if issubclass(kind, ProvedText):
        return {"title": kind.__name__, **kind.schema}
    raise NotImplementedError(kind)


# Keywords whose values are any JSON, not schemas.
_SAMPLES: Final = frozenset({"examples", "default", "const", "enum"})
_WITH_MEMBERS: Final = frozenset({"properties", "additionalProperties", "anyOf"})


def _hoisted(node: Any, named: Json) -> Any:
    """`node` with a reference in place of each schema that has a title; the schema goes to `named`, once.

    An object without named members is open and says so explicitly: otherwise generated clients send no members.
    """
    if isinstance(node, list):
        return [_hoisted(each, named) for each in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    plain = _hoisted_below(cast("Json", node), named)
    if plain.get("type") == "object" and not plain.keys() & _WITH_MEMBERS:
        plain["additionalProperties"] = True
    title = plain.get("title")
    if not isinstance(title, str):
        return plain
    is_the_same = named.setdefault(title, plain) == plain
    return {"$ref": _REF.format(name=title)} if is_the_same else plain


def _hoisted_below(schema: Json, named: Json) -> Json:
    return {key: value if key in _SAMPLES else _hoisted(value, named) for key, value in schema.items()}


def _records(shapes: list[Any]) -> list[StructType]:
    """The records that `shapes` are made of, each once."""
    found = (info for shape in shapes for info in _inside(shape) if isinstance(info, StructType))
    return list({info.cls: info for info in found}.values())


def _add_texts(components: Json, records: list[StructType]) -> None:
    """Add the class attribute `example` of each record, and its docstring as all Pythons have it.

    From Python 3.13 on a docstring is not indented; earlier ones, and the schema that msgspec makes there, keep what
    stands before each line.
    """
    for info in records:
        component = components[info.cls.__name__]
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
        if hasattr(info.cls, "example"):
            component["examples"] = [cast("Any", info.cls).example]


def _tell_defaults(components: Json, records: list[StructType]) -> None:
    """Describe in words the value of a member that is left out.

    The keyword `default` says the same, but generators take it for a promise that the member is there, and demand it
    from clients that send the object (openapi-typescript, `--default-non-nullable`).
    """
    for info in records:
        members = components[info.cls.__name__]["properties"]
        for field in info.fields:
            member = members[field.encode_name]
            member.pop("default", None)
            default = field.default if field.default_factory is NODEFAULT else field.default_factory()
            if default not in (NODEFAULT, UNSET, None):
                said = f"Default: `{encode(default).decode()}`"
                about = member.get("description")
                member["description"] = f"{about}. {said}" if about else said


def _package(each: Operation) -> str:
    """The package of an operation's room or resource, whose name is the operation's tag."""
    parts = each.handler.__module__.split(".")
    return ".".join(parts[: 4 if "resources" in parts else 3])


def _described(each: Operation, schema_of: dict[str, Json], problems: Json) -> Json:
    summary, _, more = (inspect.getdoc(each.handler) or "").partition("\n")
    described: Json = {
        "operationId": re.sub(r"_(\w)", lambda match: match[1].upper(), each.handler.__name__),
        "tags": [_package(each).rpartition(".")[2]],
        "summary": summary.rstrip("."),
        "description": more.strip() or summary,
        "security": [],
        "parameters": [*_parameters(each)],
        "responses": {**_answers(each, schema_of), **described_problems(refusals_of(each), problems)},
    }
    for kind in each.hints.values():
        if hasattr(kind, "security"):
            described["security"] = kind.security
        if hasattr(kind, "request_body"):
            described["requestBody"] = kind.request_body
    if body := each.hints.get("body"):
        required = type(None) not in get_args(body)
        content = {"application/json": {"schema": _schema_of(body, schema_of)}}
        described["requestBody"] = {"required": required, "content": content}
    return described


_HEADER_EXAMPLES: Final = {
    "accept": "application/vnd.ipld.car",
    "cache-control": "only-if-cached",
    "if-none-match": '"QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4"',
    "if-range": '"QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4"',
    "last-event-id": "ZS0wYmFkY2FmZS0xMDA",
    "range": "bytes=0-1023",
}


def _parameters(each: Operation) -> Iterator[Json]:
    for name, kind in each.hints.items():
        if f"{{{name}}}" in each.path:
            yield {"name": name, "in": "path", "required": True, "schema": _schema(kind)}
    if query := each.hints.get("query"):
        (_,), components = msgspec.json.schema_components([query], schema_hook=_schema, ref_template=_REF)
        for name, schema in components[query.__name__]["properties"].items():
            schema.pop("default", None) if schema.get("default", ...) is None else None
            yield {"name": name, "in": "query", "required": False, **_query_schema(schema)}
    for name, about in each.headers_read.items():
        schema = {"type": "string", "examples": [_HEADER_EXAMPLES[name]]}
        yield {"name": name, "in": "header", "required": False, "description": about, "schema": schema}


def _query_schema(schema: Json) -> Json:
    """A list is a parameter that may come again; an optional one is left out, never null."""
    choices = [choice for choice in schema.get("anyOf", [schema]) if choice != {"type": "null"}]
    merged = {**{key: value for key, value in schema.items() if key != "anyOf"}, **choices[0]}
    about = {"description": merged["description"]} if "description" in merged else {}
    if merged.get("type") == "array":
        words = f"{merged['description']}. `a,b` means the same as the parameter twice"
        return {"description": words, "style": "form", "explode": True, "schema": {**merged, "description": words}}
    return {**about, "schema": merged}


def _answers(each: Operation, schema_of: dict[str, Json]) -> Json:
    """The answers that are no refusals, by status."""
    answers = dict(each.answers)
    results = _result_types(each)
    if results:
        answers.setdefault(_OK, Answer("Done"))
    if each.hints.get("return") is type(None):
        answers.setdefault(_NO_CONTENT, Answer("Done; no content"))
    schema = _schema_of(results[0], schema_of) if results else None
    return {
        str(status): described_answer(status, answer, answer.schema or (schema if status == _OK else None))
        for status, answer in sorted(answers.items())
    }
