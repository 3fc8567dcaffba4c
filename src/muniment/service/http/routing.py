"""Routing: the resource of each path with its methods, and the router that finds it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from muniment.protocol.errors import MethodNotAllowed, MethodNotImplemented, UnknownPath
from muniment.service.http.operation import Operation, refused
from muniment.service.http.reply import Ready

if TYPE_CHECKING:
    from muniment.service.http.request import Request

# RFC 9110 section 9.3, and RFC 5789, with which webhooks are changed.
METHODS: Final = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
# The refusal of a method that no resource can have (RFC 9110 section 15.6.2).
UNKNOWN_METHOD: Final = f"this service knows the methods {', '.join(sorted(METHODS))}"
# Paths of a sister service, each with the path to use here.
_ELSEWHERE = {
    "/executions": "executions are not kept here; ask GET /intents?configSig=SIG&generation=all for a trigger's intents"
}


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
        detail = _ELSEWHERE.get(request.path, "no operation has this path; /docs lists them all")
        return refused(UnknownPath(detail), request)


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
        resource = self._resource(request)
        return NOWHERE if resource is None else resource.by_method.get(request.method, resource.no_method)

    def _resource(self, request: Request) -> Resource | None:
        path = request.path
        if resource := self._plain.get(path):
            return resource
        beginning, _, last = path.rpartition("/")
        if last and (found := self._by_beginning.get(beginning)):
            resource, name = found
            request.parameters = {name: last}
            return resource
        for pattern, resource in self._templates.get(path.split("/", 2)[1], ()):
            if match := pattern.fullmatch(path):
                request.parameters = match.groupdict()
                return resource
        return None


def _pattern(path: str, *, takes_rest: bool) -> re.Pattern[str]:
    """A path with parameters: each takes one segment, which is not empty (RFC 6570 section 3.2.2)."""
    parts = [f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else re.escape(part) for part in path.split("/")]
    return re.compile("/".join(parts)[:-6] + ".*[^/])" if takes_rest else "/".join(parts), re.DOTALL)
