"""Pages as operations, and their files: scripts and styles, under a path with the hash of all of them."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache, wraps
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from muniment.protocol.errors import InvalidParameter, UnknownPath
from muniment.protocol.wire import ProvedText
from muniment.service.http.assets import Assets
from muniment.service.http.html.frame import Page, framed, root_from, style_sheet
from muniment.service.http.operation import Operation, Source, operation
from muniment.service.http.reference_pages import STYLE as REFERENCE_STYLE, reference_style
from muniment.service.http.reply import Ready
from muniment.service.http.request import Request, media_ranges, named_quality
from muniment.service.running.limits.costs import CONTENT, READ, Cost, Shed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_TYPES: Final = {"js": b"text/javascript; charset=utf-8", "css": b"text/css; charset=utf-8"}
# A year: the path changes with the content (RFC 8246).
_KEPT: Final = (b"cache-control", b"public, max-age=31536000, immutable")
_DAY: Final = (b"cache-control", b"public, max-age=86400")
_IMPORT: Final = re.compile(
    r'^(?:import|export)\b[^;"]*?\bfrom "(\.[./a-z-]+)";|^import "(\.[./a-z-]+)";', re.MULTILINE
)
_HASH_LENGTH: Final = 12
# The style sheets of the frame and of the pages in one file, to save a request.
_STYLES: Final = "style.css"
# A type comment within a line, such as `/** @type {string} */`.
_CAST: Final = re.compile(r"/\*\* @(?:(?!\*/).)*\*/ ?")
# A word, such as the name of a page. No identifier is one: they have digits, or are longer.
_WORD: Final = re.compile("[a-z][a-z-]{0,30}")
# The beginning of vendored files, whose licence comments are kept.
_VENDORED: Final = b"// @"


class _Name(ProvedText):
    """A part of the path of a file."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {"type": "string", "description": "A part of the path of a file"}
    refuses = InvalidParameter

    @classmethod
    def parse(cls, text: str) -> _Name:
        """Accepts any text; only known names are found."""
        return cls(text)


class _File(NamedTuple):
    content: bytes
    compressed: bytes
    media_type: bytes


@operation("GET", "/console/assets/{release}/{name}", cost=CONTENT, sheds=Shed.READ, refuses=(UnknownPath,))
async def get_file(request: Request, release: _Name, name: _Name) -> Ready[bytes]:
    """Read a script or a style sheet of the pages."""
    return _reply(request, release, name)


@operation("GET", "/console/assets/{release}/{folder}/{name}", cost=CONTENT, sheds=Shed.READ, refuses=(UnknownPath,))
async def get_file_of_folder(request: Request, release: _Name, folder: _Name, name: _Name) -> Ready[bytes]:
    """Read a script in a folder."""
    return _reply(request, release, f"{folder}/{name}")


@operation("GET", "/robots.txt", cost=READ, sheds=Shed.READ)
async def get_robots() -> Ready[bytes]:
    """Exclude search engines from the pages (RFC 9309), which cost CPU and are as many as the records."""
    return Ready(b"User-agent: *\nDisallow: /console\n", ((b"content-type", b"text/plain; charset=utf-8"), _DAY))


@cache
def assets(notice: str = "") -> Assets:
    """The paths of the files, the imports of each module, and the line above every page."""
    digest = hashlib.sha256()
    for name, file in sorted(_files().items()):
        digest.update(b"%s\0%d\0%s" % (name.encode(), len(file.content), file.content))
    release = digest.hexdigest()[:_HASH_LENGTH]
    return Assets(
        f"console/assets/{release}",
        f"Muniment {version('muniment')}, pages {release}",
        styles=(_STYLES,),
        imports={name: tuple(_imported(name, {name})) for name in _files() if name.endswith(".js")},
        notice=notice,
    )


def _reply(request: Request, release: str, name: str) -> Ready[bytes]:
    found = _files().get(name) if assets().path.endswith(f"/{release}") else None
    if found is None:
        raise UnknownPath("there is no such file; load the page again")
    headers = ((b"content-type", found.media_type), _KEPT, (b"vary", b"Accept-Encoding"))
    if named_quality(media_ranges(request.headers(b"accept-encoding")), "gzip"):
        return Ready(found.compressed, (*headers, (b"content-encoding", b"gzip")))
    return Ready(found.content, headers)


@cache
def _files() -> Mapping[str, _File]:
    """All files by name, with compressed content."""
    contents = dict(_walk(files("muniment.service.console") / "assets", ""))
    contents[_STYLES] = style_sheet() + contents.pop("console.css")
    contents[REFERENCE_STYLE] = reference_style()
    return {
        name: _File(sent := without_comments(content), gzip.compress(sent, mtime=0), _TYPES[name.rpartition(".")[2]])
        for name, content in contents.items()
    }


def without_comments(content: bytes) -> bytes:
    """A script or style sheet without comments and indentation.

    Comments are a third of the bytes. They stand on lines of their own, except for types, and these files have no
    multi-line strings: a test checks both.
    """
    if content.startswith(_VENDORED):
        return content
    kept: list[str] = []
    is_inside = False
    for line in content.decode().splitlines():
        text = _CAST.sub("", line).strip()
        is_inside = is_inside or text.startswith("/*")
        if text and not is_inside and not text.startswith("//"):
            kept.append(text)
        is_inside = is_inside and not text.endswith("*/")
    return "\n".join([*kept, ""]).encode()


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _walk(each, f"{prefix}{each.name}/")
        elif each.name.rpartition(".")[2] in _TYPES:
            yield f"{prefix}{each.name}", each.read_bytes()


def _imported(name: str, seen: set[str]) -> Iterator[str]:
    """The modules that a module imports, directly or indirectly."""
    folder = name.rpartition("/")[0]
    for found in _IMPORT.finditer(_files()[name].content.decode()):
        target = _resolved(folder, found[1] or found[2])
        if target not in seen and target in _files():
            seen.add(target)
            yield target
            yield from _imported(target, seen)


def _resolved(folder: str, path: str) -> str:
    """A relative import from a module in `folder`."""
    parts = folder.split("/") if folder else []
    for part in path.split("/"):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


# A page of 25 rows takes four to ten milliseconds of CPU and has some forty kilobytes.
COST: Final = Cost(220, sent_bytes_per_unit=1024)

Handler = Callable[..., Awaitable[Page]]


def page(path: str) -> Callable[[Handler], Operation]:
    """Declare a handler as the page at `path`.

    Its parameters are those of an operation (`muniment.service.http.operation`), with the `Request` as `request`. A
    `Refusal` becomes a page with the same status.
    """

    def declare(handler: Handler) -> Operation:
        @wraps(handler)
        async def answer(**values: Any) -> Ready[bytes]:
            shown, request = await handler(**values), values["request"]
            return framed(shown, root_from(request.path), request.assets or assets(), shown.status)

        declared = operation("GET", path, cost=COST, sheds=Shed.PAGE)(answer)
        return replace(declared, sources=tuple(
            (name, _of_page(name, source) if f"{{{name}}}" in path else source, is_awaited)
            for name, source, is_awaited in declared.sources
        ))  # fmt: skip

    return declare


def _of_page(name: str, source: Source) -> Source:
    """`source`, which refuses a word in the place of an identifier as the name of a page that there is not."""

    def read(request: Request) -> Any:
        if _WORD.fullmatch(request.parameters[name]):
            raise UnknownPath(f"the console has no page {request.path.removeprefix('/console/')}")
        return source(request)

    return read
