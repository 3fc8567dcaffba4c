"""Operations by path: one resource for each path, which knows all its methods, and the way to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any

from starlette.routing import Router

from muniment.errors import MethodNotAllowed, UnknownPath
from muniment.http.operation import Operation, refused
from muniment.http.reply import Ready, send_reply

if TYPE_CHECKING:
    from starlette.types import Lifespan, Receive, Scope, Send

# Paths that clients know from a sister service, and what to ask here instead.
_ELSEWHERE = {"/executions": "executions are not kept here; ask GET /intents?configSig= for what a trigger led to"}


class Resource:
    """Everything at one path. HEAD comes with GET, OPTIONS with any."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        """Serve `operations`, which share a path."""
        self._by_method = {each.method: each for each in operations}
        get = self._by_method.get("GET")
        self.is_at_once = get is not None and get.at_once
        if get is not None:
            self._by_method["HEAD"] = get
        self._allow = ", ".join([*sorted(self._by_method), "OPTIONS"]).encode()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve the method asked for, or say which there are (RFC 9110 section 15.5.6)."""
        method: str = scope["method"]
        if found := self._by_method.get(method):
            return found(scope, receive, send)
        if method == "OPTIONS":
            return send_reply(Ready(b"", self._preflight(scope), 204), scope, send)
        refusal = MethodNotAllowed(f"{method} is not one of {self._allow.decode()}")
        return send_reply(refused(refusal, scope, ((b"allow", self._allow),)), scope, send)

    def _preflight(self, scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
        """What a browser asks before a request across origins (Fetch standard, CORS-preflight)."""
        wanted = next((value for key, value in scope["headers"] if key == b"access-control-request-headers"), b"*")
        return (
            (b"allow", self._allow),
            (b"access-control-allow-methods", self._allow),
            (b"access-control-allow-headers", wanted),
            (b"access-control-max-age", b"86400"),
            (b"vary", b"Access-Control-Request-Headers"),
        )


class Template:
    """A path with parameters: each takes one segment, which is not empty (RFC 6570 section 3.2.2)."""

    def __init__(self, path: str, resource: Resource) -> None:
        """Lead from `path` to `resource`."""
        self.segments = path.split("/")
        self.resource = resource
        self.last_name = self.segments[-1][1:-1]
        self._named = [(at, text[1:-1]) for at, text in enumerate(self.segments) if text.startswith("{")]
        self._fixed = [(at, text) for at, text in enumerate(self.segments) if not text.startswith("{")]

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """The parameters that as many segments as these hold, undecoded, if they fit."""
        for at, text in self._fixed:
            if segments[at] != text:
                return None
        parameters = {name: segments[at] for at, name in self._named}
        return parameters if all(parameters.values()) else None


class Paths:
    """All resources. A path without parameters is found by its text, before any that has parameters is tried."""

    def __init__(self, operations: Iterable[Operation], lifespan: Lifespan[Any] | None = None) -> None:
        """Serve `operations`; `lifespan` runs around the whole."""
        by_path: defaultdict[str, list[Operation]] = defaultdict(list)
        for each in operations:
            by_path[each.path].append(each)
        self._plain = {path: Resource(found) for path, found in by_path.items() if "{" not in path}
        # Most have one parameter, at the end, and are found by what stands before it.
        self._by_beginning: dict[str, Template] = {}
        # The others by the first segment and how many there are: few are left to be tried.
        self._templates: defaultdict[tuple[str, int], list[Template]] = defaultdict(list)
        for path, found in by_path.items():
            if "{" in path:
                template = Template(path, Resource(found))
                beginning, _, last = path.rpartition("/")
                if "{" in beginning or "{" not in last:
                    self._templates[template.segments[1], len(template.segments)].append(template)
                else:
                    self._by_beginning[beginning] = template
        self._router = Router(lifespan=lifespan)  # for its part in the lifespan protocol

    def is_at_once(self, path: str) -> bool:
        """Whether the GET of `path` may be tried at once; `path` needs no decoding."""
        resource = self._plain.get(path)
        if resource is None and (found := self._by_beginning.get(path.rpartition("/")[0])):
            resource = found.resource
        return resource is not None and resource.is_at_once

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            return self._router(scope, receive, send)
        path: str = scope["path"]
        if resource := self._plain.get(path):
            return resource(scope, receive, send)
        beginning, _, last = path.rpartition("/")
        if last and (found := self._by_beginning.get(beginning)):
            scope["path_params"] = {found.last_name: last}
            return found.resource(scope, receive, send)
        segments = path.split("/")
        for template in self._templates.get((segments[1], len(segments)), ()):
            if (parameters := template.match(segments)) is not None:
                scope["path_params"] = parameters
                return template.resource(scope, receive, send)
        return unknown_path(scope, receive, send)


async def unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 404 for a path that no operation has."""
    del receive
    detail = _ELSEWHERE.get(scope["path"], "no operation has this path; /docs lists them all")
    await send_reply(refused(UnknownPath(detail), scope), scope, send)
