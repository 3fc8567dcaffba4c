"""Operations by path: the resource of each path with all its methods, and the router that finds it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from muniment.errors import MethodNotAllowed, MethodNotImplemented, UnknownPath
from muniment.http.operation import Operation, refused
from muniment.http.reply import Ready

if TYPE_CHECKING:
    from muniment.http.request import Request

# RFC 9110 section 9.3, and RFC 5789, with which webhooks are changed.
METHODS: Final = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
# The refusal of a method that no resource can have (RFC 9110 section 15.6.2).
UNKNOWN_METHOD: Final = f"this service knows the methods {', '.join(sorted(METHODS))}"
# Paths that clients know from a sister service, each with the path to use here.
_ELSEWHERE = {
    "/executions": "executions are not kept here; ask GET /intents?configSig=SIG&generation=all for a trigger's intents"
}


class Resource:
    """Everything at one path. HEAD comes with GET, OPTIONS with any."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        """Hold `operations`, all with the same path."""
        by_method = {each.method: each for each in operations}
        self.takes_rest = any(each.takes_rest for each in by_method.values())
        self.path = next(iter(by_method.values())).path
        if (get := by_method.get("GET")) is not None:
            by_method["HEAD"] = get
        self._allow = ", ".join([*sorted(by_method), "OPTIONS"]).encode()
        self.by_method: Mapping[str, Found] = {method: Found(each) for method, each in by_method.items()}
        self.no_method = Found(None, self)

    def refuse(self, request: Request) -> Ready[Any]:
        """Refuse the method and name the allowed ones (RFC 9110 section 15.5.6), or answer OPTIONS with them."""
        if request.method == "OPTIONS":
            return Ready(b"", self._preflight(request), 204)
        refusal = MethodNotAllowed(f"{request.method} is not one of {self._allow.decode()}")
        return refused(refusal, request, ((b"allow", self._allow),))

    def _preflight(self, request: Request) -> tuple[tuple[bytes, bytes], ...]:
        """The answer to a browser's preflight before a request across origins (Fetch standard, CORS-preflight)."""
        return (
            (b"allow", self._allow),
            (b"access-control-allow-methods", self._allow),
            (b"access-control-allow-headers", request.named.get(b"access-control-request-headers", b"*")),
            (b"access-control-max-age", b"86400"),
            (b"vary", b"Access-Control-Request-Headers"),
        )


@dataclass(frozen=True, slots=True)
class Found:
    """The operation of a request, or why it has none."""

    operation: Operation | None
    resource: Resource | None = None

    def refuse(self, request: Request) -> Ready[Any]:
        """The answer where there is no operation."""
        if request.method not in METHODS:
            return refused(MethodNotImplemented(UNKNOWN_METHOD), request, ((b"connection", b"close"),))
        if self.resource is not None:
            return self.resource.refuse(request)
        detail = _ELSEWHERE.get(request.path, "no operation has this path; /docs lists them all")
        return refused(UnknownPath(detail), request)


NOWHERE: Final = Found(None)


@dataclass(slots=True)
class Template:
    """A path with parameters: each takes one segment, which is not empty (RFC 6570 section 3.2.2)."""

    path: str
    resource: Resource
    segments: list[str] = field(init=False)
    _named: list[tuple[int, str]] = field(init=False)
    _fixed: list[tuple[int, str]] = field(init=False)

    def __post_init__(self) -> None:
        """Split the path."""
        self.segments = self.path.split("/")
        self._named = [(at, text[1:-1]) for at, text in enumerate(self.segments) if text.startswith("{")]
        self._fixed = [(at, text) for at, text in enumerate(self.segments) if not text.startswith("{")]

    def joined(self, segments: list[str]) -> list[str]:
        """`segments` as many as the template has: the last one has all that are left, with their slashes."""
        last = len(self.segments) - 1
        return [*segments[:last], "/".join(segments[last:])]

    @property
    def last_name(self) -> str:
        """The name of the parameter at the end."""
        return self.segments[-1][1:-1]

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """The parameters in `segments`, percent-encoded; None when the template does not match."""
        for at, text in self._fixed:
            if segments[at] != text:
                return None
        parameters = {name: segments[at] for at, name in self._named}
        return parameters if all(parameters.values()) else None


class Router:
    """All resources. A path without parameters is found by its text, before any that has parameters is tried."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        """Lead to `operations`."""
        by_path: defaultdict[str, list[Operation]] = defaultdict(list)
        for each in operations:
            by_path[each.path].append(each)
        self._plain = {path: Resource(found) for path, found in by_path.items() if "{" not in path}
        # Most have one parameter, at the end, and are found by the text before it.
        self._by_beginning: dict[str, tuple[Resource, str]] = {}
        # The others are found by their first segment and the number of segments: few are left to try.
        self._templates: defaultdict[tuple[str, int], list[Template]] = defaultdict(list)
        # Those whose last parameter takes all segments that are left, tried last, by their first segment.
        self._with_rest: defaultdict[str, list[Template]] = defaultdict(list)
        for path, found in by_path.items():
            if "{" in path:
                template = Template(path, Resource(found))
                beginning, _, last = path.rpartition("/")
                if template.resource.takes_rest:
                    self._with_rest[template.segments[1]].append(template)
                elif "{" in beginning or "{" not in last:
                    self._templates[template.segments[1], len(template.segments)].append(template)
                else:
                    self._by_beginning[beginning] = template.resource, template.last_name

    def find(self, request: Request) -> Found:
        """The operation that a request asks for; sets the request's path parameters."""
        resource = self._resource(request)
        if resource is None:
            return NOWHERE
        return resource.by_method.get(request.method, resource.no_method)

    def _resource(self, request: Request) -> Resource | None:
        path = request.path
        if resource := self._plain.get(path):
            return resource
        beginning, _, last = path.rpartition("/")
        if last and (found := self._by_beginning.get(beginning)):
            resource, name = found
            request.parameters = {name: last}
            return resource
        segments = path.split("/")
        for template in self._templates.get((segments[1], len(segments)), ()):
            if (parameters := template.match(segments)) is not None:
                request.parameters = parameters
                return template.resource
        for template in self._with_rest.get(segments[1], ()):
            if len(segments) < len(template.segments):
                continue
            if last and (parameters := template.match(template.joined(segments))) is not None:
                request.parameters = parameters
                return template.resource
        return None
