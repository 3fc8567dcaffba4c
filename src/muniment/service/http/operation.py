"""Operations from handlers, whose annotations define how a request is read and what OpenAPI shows; and their router.

    @operation("GET", "/triggers/{sig}", cost=READ, sheds=Shed.READ, refuses=(TriggerNotFound,))
    async def get_trigger(context: Context, sig: Signature) -> Ready[Trigger]:

- a parameter that the path names is a path parameter, and parses itself;
- `query` is a record read from the query string, `body` one from the JSON body (optional if it may be None; `A | B`
  for a record with two forms);
- a parameter whose type has `from_request` is made from the request (the context, a caller, an upload);
- the result is a `Reply`, None (204), or a value that is encoded as JSON.
"""

from __future__ import annotations

import inspect
import math
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast, get_args, get_type_hints

import structlog

from muniment.protocol.errors import (
    Broken,
    DiskAlmostFull,
    Fault,
    InternalError,
    InvalidBody,
    MethodNotAllowed,
    MethodNotImplemented,
    NotReady,
    Overloaded,
    Refusal,
    Unavailable,
    UnknownPath,
)
from muniment.protocol.forms import decode_record
from muniment.protocol.json_text import parse_json
from muniment.protocol.wire import ProvedText, Record, encode
from muniment.service.http.html.frame import is_for_reader, problem_page, root_from
from muniment.service.http.paging import PageQuery, admit_page
from muniment.service.http.problems import problem
from muniment.service.http.query import QueryReader
from muniment.service.http.reply import NO_CONTENT, Ready, Reply, Streamed
from muniment.service.http.request import ClientGone, Request, content_type
from muniment.service.running.limits.costs import Cost, Shed
from muniment.service.running.limits.overload import BYTES_PER_WEIGHT

Handler = Callable[..., Awaitable[Any]]
Source = Callable[[Request], Any]

_PATH_PARAMETER: Final = re.compile(r"\{([a-z_]+)\}")
_JSON_SPACE: Final = b" \t\r\n"  # RFC 8259 section 2

# Of no known parameter: what a handler returns stays as it is.
_REPLIES: Final = cast("tuple[type, ...]", (Ready, Streamed))
# Clients can cause thousands of these a second; the module that detects the cause logs one line.
_LOGGED_ELSEWHERE: Final = (Overloaded, NotReady, DiskAlmostFull)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer for the OpenAPI document. Status 200 takes its JSON from the return annotation."""

    description: str
    media_types: tuple[str, ...] = ()
    # Header fields of this answer, with their descriptions.
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    # JSON Schema of the body in `application/json`, without an annotation for it.
    schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A method and a path with their handler."""

    method: str
    path: str
    handler: Handler
    refuses: tuple[type[Refusal], ...]
    answers: Mapping[int, Answer]
    headers_read: Mapping[str, str]
    hints: Mapping[str, Any]
    sources: tuple[tuple[str, Source, bool], ...]
    cost: Cost
    sheds: Shed
    # Whether a parameter needs a credential, whose wallet is charged; operators are not charged.
    takes_credential: bool
    # A request whose answer has a shorter body owes no more than `cost.units`.
    bytes_free: float
    # Whether the last parameter of its path takes all remaining segments, with their slashes.
    takes_rest: bool
    # Whether it is long work that waits in the `muniment.service.running.limits.overload`.
    takes_turns: bool

    async def answer(self, request: Request) -> Reply:
        """The answer to one request: also the problem document of a refusal, or an `internal-error` for a crash.

        Raises `ClientGone` when the client has disconnected.
        """
        try:
            if self.takes_credential and request.turns is not None:  # a token takes as long to verify as a create
                await request.turns.wait(request.client.name)
            values: dict[str, Any] = {}
            for name, source, is_awaited in self.sources:
                values[name] = await source(request) if is_awaited else source(request)
            result = await self.handler(**values)
            return result if isinstance(result, _REPLIES) else _encoded(result)
        except Refusal as refusal:
            request.owe_for(refusal)
            return refused(refusal, request)
        except ClientGone:
            raise
        except Exception:  # noqa: BLE001 - the last resort: the log has the details, the answer none
            return crashed(request, f"{self.method} {self.path}")


def operation(
    method: str,
    path: str,
    *,
    cost: Cost | int,
    sheds: Shed,
    refuses: tuple[type[Refusal], ...] = (),
    answers: Mapping[int, Answer] | None = None,
    headers_read: Mapping[str, str] | None = None,
    takes_rest: bool = False,
) -> Callable[[Handler], Operation]:
    """Declare a handler as the operation `method path`.

    `refuses` are the refusals of its own rules, without those of its parameters. `answers` are further answers besides
    the return annotation, `headers_read` the optional header fields that it reads, with their purposes. `takes_rest`:
    the last parameter of the path takes all remaining segments. `cost` is in units, `sheds` the stage of overload at
    which it is refused: see `muniment.service.running.limits.costs`.
    """

    def declare(handler: Handler) -> Operation:
        hints = get_type_hints(handler, include_extras=True)
        in_path = set(_PATH_PARAMETER.findall(path))
        sources = tuple(
            (name, source, _is_awaited(source))
            for name, kind in hints.items()
            if name != "return"
            for source in (_source(name, kind, in_path),)
        )
        full = cost if isinstance(cost, Cost) else Cost(cost)
        takes_credential = any(hasattr(kind, "security") for kind in hints.values())
        return Operation(
            method=method, path=path, handler=handler, refuses=refuses,
            answers=answers or {}, headers_read=headers_read or {}, hints=hints, sources=sources,
            cost=full, sheds=sheds,
            takes_credential=takes_credential,
            bytes_free=0 if full.received_bytes_per_unit else full.sent_bytes_per_unit or math.inf,
            takes_rest=takes_rest,
            takes_turns=sheds is not Shed.NEVER and (takes_credential or "body" in hints),
        )  # fmt: skip

    return declare


def refused(refusal: Refusal, request: Request, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Ready[Any]:
    """`refusal` as the answer to `request`; a fault of the service is logged."""
    accept = next((value.decode("latin-1") for key, value in request.fields if key == b"accept"), "")
    if request.assets and is_for_reader(request.path, accept):
        reply = problem_page(refusal, request.id, root_from(request.path), request.assets, headers)
    else:
        reply = problem(refusal, request.id, request.root, accept, headers)
    request.refused = refusal.code
    if isinstance(refusal, (Broken, Unavailable)) and not isinstance(refusal, _LOGGED_ELSEWHERE):
        _log.error("refused", code=refusal.code, detail=refusal.detail, request_id=request.id)
    return reply


def crashed(request: Request, where: str) -> Ready[Any]:
    """The answer to a request that failed by a bug; call it while the exception is handled."""
    _log.exception("crash", operation=where, request_id=request.id)
    return refused(InternalError("an error of this software; the operator can find it by requestId"), request)


def _encoded(result: object) -> Ready[Any]:
    return NO_CONTENT if result is None else Ready(encode(result))


def _is_awaited(source: Source) -> bool:
    return inspect.iscoroutinefunction(source) or inspect.iscoroutinefunction(getattr(source, "__func__", None))


def _source(name: str, kind: Any, in_path: set[str]) -> Source:
    """The source of the parameter `name` of type `kind`."""
    if name in in_path:
        return _path_source(name, kind)
    if name == "query":
        return _page_source(kind) if issubclass(kind, PageQuery) else _query_source(kind)
    if name == "body":
        return _body_source(kind)
    if kind is Request:
        return lambda request: request
    if hasattr(kind, "from_request"):
        return kind.from_request
    raise TypeError(f"nothing in a request gives {name}: {kind!r}")


def _query_source(kind: type[Record]) -> Source:
    reader = QueryReader(kind)
    return lambda request: reader.read(request.query)


def _page_source(kind: type[PageQuery]) -> Source:
    reader = QueryReader(kind)

    def source(request: Request) -> PageQuery:
        query = reader.read(request.query)
        admit_page(request, query)
        return query

    return source


def _path_source(name: str, kind: type[ProvedText]) -> Source:
    def source(request: Request) -> ProvedText:
        try:
            return kind.parse(request.path_text(name))
        except Refusal as refusal:
            raise type(refusal)(refusal.detail, faults=[Fault(refusal.detail, parameter=name)]) from None

    return source


async def _wait_for_turn(request: Request, size: int) -> None:
    """Charge a body of `size` bytes; wait until it may be decoded. Raises `RateLimited`, `Overloaded`, `ClientGone`."""
    if request.turns is None:
        return
    request.charge_body()
    weight = (0 if request.wallet else 1) + size // BYTES_PER_WEIGHT  # the check of a credential has waited already
    if weight:
        await request.turns.wait(request.client.name, weight)
        request.require_client()


_JSON_WANTED: Final = "send the body as JSON in UTF-8, with Content-Type: application/json"


def _body_source(kind: Any) -> Source:
    optional = type(None) in get_args(kind)

    async def source(request: Request) -> Any:
        data = await request.body()
        await _wait_for_turn(request, len(data))
        if optional and not data.strip(_JSON_SPACE):
            return None
        if not data:
            raise InvalidBody("a JSON body is required", pointer="")
        content_type(request, "application/json", _JSON_WANTED)
        return decode_record(parse_json(data), kind)

    return source


# RFC 9110 section 9.3, and RFC 5789, with which webhooks are changed.
METHODS: Final = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
# The refusal of a method that no resource can have (RFC 9110 section 15.6.2).
UNKNOWN_METHOD: Final = f"this service knows the methods {', '.join(sorted(METHODS))}"


class Resource:
    """Everything at one path. HEAD comes with GET, OPTIONS with any."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        """Hold `operations`, all with the same path."""
        by_method = {each.method: each for each in operations}
        first = next(iter(by_method.values()))
        self.path, self.takes_rest = first.path, first.takes_rest
        if (get := by_method.get("GET")) is not None:
            by_method["HEAD"] = get
        self._allow = ", ".join([*sorted(by_method), "OPTIONS"]).encode()
        self.by_method: Mapping[str, Found] = {method: Found(each) for method, each in by_method.items()}
        self.no_method = Found(None, self)

    def refuse(self, request: Request) -> Ready[Any]:
        """Refuse the method and name the allowed ones (RFC 9110 section 15.5.6), or answer OPTIONS with them."""
        if request.method != "OPTIONS":
            refusal = MethodNotAllowed(f"{request.method} is not one of {self._allow.decode()}")
            return refused(refusal, request, ((b"allow", self._allow),))
        headers = (  # also for a browser's preflight before a request across origins (Fetch standard, CORS-preflight)
            (b"allow", self._allow),
            (b"access-control-allow-methods", self._allow),
            (b"access-control-allow-headers", request.named.get(b"access-control-request-headers", b"*")),
            (b"access-control-max-age", b"86400"),
            (b"vary", b"Access-Control-Request-Headers"),
        )
        return Ready(b"", headers, 204)


@dataclass(frozen=True, slots=True)
class Found:
    """The operation of a request, or why it has none."""

    operation: Operation | None
    resource: Resource | None = None

    def refuse(self, request: Request) -> Ready[Any]:
        """The answer to a request without an operation."""
        if request.method not in METHODS:
            return refused(MethodNotImplemented(UNKNOWN_METHOD), request, ((b"connection", b"close"),))
        if self.resource is not None:
            return self.resource.refuse(request)
        return refused(UnknownPath("no operation has this path; /docs lists them all"), request)


NOWHERE: Final = Found(None)


class Router:
    """All resources. Paths without parameters take precedence."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        """Lead to `operations`."""
        by_path: defaultdict[str, list[Operation]] = defaultdict(list)
        for each in operations:
            by_path[each.path].append(each)
        resources = {path: Resource(found) for path, found in by_path.items()}
        self._plain = {path: resource for path, resource in resources.items() if "{" not in path}
        # Most have one parameter, at the end, and are found by the text before it.
        self._by_beginning: dict[str, tuple[Resource, str]] = {}
        # The others are tried in turn, by their first segment; those whose last parameter has slashes come last.
        self._templates: defaultdict[str, list[tuple[re.Pattern[str], Resource]]] = defaultdict(list)
        for path, resource in sorted(resources.items(), key=lambda each: each[1].takes_rest):
            beginning, _, last = path.rpartition("/")
            if "{" in beginning or resource.takes_rest:
                self._templates[path.split("/", 2)[1]].append(
                    (_pattern(path, takes_rest=resource.takes_rest), resource)
                )
            elif "{" in last:
                self._by_beginning[beginning] = resource, last[1:-1]

    def find(self, request: Request) -> Found:
        """The operation that a request asks for; sets the request's path parameters."""
        path = request.path
        if (resource := self._plain.get(path)) is None:
            beginning, _, last = path.rpartition("/")
            if last and (found := self._by_beginning.get(beginning)) is not None:
                resource, name = found
                request.parameters = {name: last}
            else:
                resource = self._matching(request)
        return NOWHERE if resource is None else resource.by_method.get(request.method, resource.no_method)

    def _matching(self, request: Request) -> Resource | None:
        """The first resource whose pattern matches; sets the path parameters."""
        path = request.path
        for pattern, resource in self._templates.get(path.split("/", 2)[1], ()):
            if match := pattern.fullmatch(path):
                request.parameters = match.groupdict()
                return resource
        return None


def _pattern(path: str, *, takes_rest: bool) -> re.Pattern[str]:
    """A path with parameters: each takes one segment, or with `takes_rest` all. None is empty."""
    parts = [f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else re.escape(part) for part in path.split("/")]
    return re.compile("/".join(parts)[:-1] + "(?:/[^/]+)*)" if takes_rest else "/".join(parts))
