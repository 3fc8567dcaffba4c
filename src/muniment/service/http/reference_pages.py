"""Pages for people: the reference of all operations and one page per error code. Both are read without a script.

With the console, a script of the reference fills in the URL of the registry, filters the index, and sends requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, LiteralString

from muniment.protocol.errors import UnknownPath
from muniment.service.http.html.frame import Page, framed, plain
from muniment.service.http.html.markup import NOTHING, Html, html

if TYPE_CHECKING:
    from muniment.service.http.assets import Assets
    from muniment.service.http.reply import Ready

# The style of these pages among the files of the console, and their script.
STYLE: Final = "reference.css"
_SCRIPT: Final = "reference.js"
_FILTER: Final = html(
    '<input type="search" id="filter" aria-label="Filter the contents" placeholder="Filter" autocomplete="off" '
    'spellcheck="false">'
)

Json = dict[str, Any]


def reference_page(document: Json, assets: Assets | None) -> Ready[bytes]:
    """The OpenAPI document as a page; with the files of the console in the console's frame, and with a script."""
    info = document["info"]
    sections = [
        html(
            '<h2 id="{}">{}</h2>{}', tag, _heading(tag), [_operation(*each, document) for each in operations]
        )
        for tag, operations in _by_tag(document).items()
    ]  # fmt: skip
    body = html(
        '<div class="reference"><div><h1>{} <small>{}</small></h1><p>{}</p><p>For programs: <a href="openapi.json">'
        '/openapi.json</a> (OpenAPI 3.1). <code>$URL</code> in an example is the URL of this registry.</p></div>{}<div>'
        '<h2 id="credentials">Credentials</h2>{}{}<h2 id="shapes">Shapes</h2>{}<h2 id="errors">Errors</h2>{}'
        "</div></div>",
        info["title"], info["version"], _prose(info["description"]),
        _contents(document, _FILTER if assets else NOTHING), _credentials(document), sections,
        [_shape(name, schema) for name, schema in sorted(document["components"]["schemas"].items())],
        _codes(document),
    )  # fmt: skip
    title = f"{info['title']}: reference"
    if assets is None:
        return plain(Page(title, body, "docs"), "./", reference_style().decode())
    return framed(Page(title, body, "docs", scripts=(_SCRIPT,), styles=(STYLE,)), "./", assets)


def error_page(code: str, document: Json, assets: Assets | None) -> Ready[bytes]:
    """The page at the `type` of a problem. Raises `UnknownPath` for an unknown code."""
    known = document["x-error-codes"].get(code)
    if known is None:
        raise UnknownPath("there is no such error code; /docs lists them all")
    body = html(
        "<h1>{}</h1><p><code>{}</code>, status {}</p><p>{}</p>"
        '<p><a href="../docs#errors">All operations and codes</a></p>',
        known["title"], code, known["status"], _prose(known["meaning"]),
    )  # fmt: skip
    page = Page(f"{known['title']} ({code})", body, "docs")
    return framed(page, "../", assets) if assets else plain(page, "../", reference_style().decode())


def reference_style() -> bytes:
    """The style of these pages, besides that of the frame."""
    return (files("muniment.service.http.html") / STYLE).read_bytes()


def _prose(text: str) -> Html:
    """Text in which `words` of code stand between backticks."""
    parts = enumerate(text.split("`"))
    return html("{}", [_code(part) if number % 2 else html("{}", part) for number, part in parts])


def _code(text: str) -> Html:
    return html("<code>{}</code>", text)


def _joined(separator: LiteralString, parts: Iterable[Html]) -> Html:
    return html("{}", [html(separator + "{}" if number else "{}", part) for number, part in enumerate(parts)])


def _pre(value: Any) -> Html:
    return html("<pre>{}</pre>", value if isinstance(value, str) else json.dumps(value, indent=2))


def _by_tag(document: Json) -> dict[str, list[tuple[str, str, Json]]]:
    by_tag: dict[str, list[tuple[str, str, Json]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            by_tag[described["tags"][0]].append((method, path, described))
    return by_tag


def _heading(tag: str) -> str:
    return {"app": "The service itself"}.get(tag, tag.capitalize())


def _contents(document: Json, first: Html) -> Html:
    groups = [
        html("<div><strong>{}</strong>{}</div>", _heading(tag), [_content(*each) for each in operations])
        for tag, operations in _by_tag(document).items()
    ]
    rest = [html('<a href="#{}">{}</a>', name, name.capitalize()) for name in ("credentials", "shapes", "errors")]
    return html(
        '<nav class="contents" aria-label="Contents">{}{}<div><strong>And</strong>{}</div></nav>', first, groups, rest
    )  # fmt: skip


def _content(method: str, path: str, described: Json) -> Html:
    return html(
        '<a href="#{}"><code><span class="{}">{}</span> {}</code></a>',
        described["operationId"], method, method.upper(), path,
    )  # fmt: skip


def _credentials(document: Json) -> Html:
    rows = [
        html("<tr><td>{}<td>{}", _code(_header(scheme)), _prose(scheme["description"]))
        for scheme in document["components"]["securitySchemes"].values()
    ]
    return html("<table><tr><th>Header<th>What it carries{}</table>", rows)


def _header(scheme: Json) -> str:
    return scheme.get("name", "Authorization: Bearer")


# A link opens closed details when its target is inside (HTML, ancestor revealing algorithm): ids are on the content.
def _operation(method: str, path: str, described: Json, document: Json) -> Html:
    parts = [html("<p>{}</p>", _prose(described["description"]))]
    headers = _headers(described, document)
    if headers:
        parts.append(html("<p>Credential: {}</p>", _joined(" or ", map(_code, headers))))
    if described["parameters"]:
        parts.append(_parameters(described["parameters"]))
    for media_type, content in described.get("requestBody", {}).get("content", {}).items():
        parts.append(html("<h3>Body</h3><p>{}: {}</p>", _code(media_type), _form(content["schema"])))
    parts += (
        html("<h3>Try it</h3>{}", _pre(_curl(method, path, described, document))),
        html('<div class="try" data-path="{}" data-headers="{}"></div>', path, "\n".join(headers))
        if _can_be_sent(method, described)
        else html(""),
        _answers(described["responses"], document),
    )
    return html(
        '<details><summary><b class="{}">{}</b>{}<span>{}</span></summary><div id="{}">{}</div></details>',
        method, method.upper(), _code(path), _prose(described["summary"]), described["operationId"], parts,
    )  # fmt: skip


def _headers(described: Json, document: Json) -> list[str]:
    """The header fields that may carry the credential of an operation."""
    schemes = document["components"]["securitySchemes"]
    return [_header(schemes[name]) for each in described.get("security", []) for name in each]


def _can_be_sent(method: str, described: Json) -> bool:
    """Whether the page may send the request: it changes nothing, and its answer ends."""
    return method == "get" and "text/event-stream" not in described["responses"].get("200", {}).get("content", {})


def _parameters(parameters: list[Json]) -> Html:
    rows = [
        html(
            "<tr><td>{}<td>{}<td>{}<td>{}", _code(each["name"]), each["in"], _form(each["schema"]),
            _prose(each.get("description") or each["schema"].get("description", "")),
        )
        for each in parameters
    ]  # fmt: skip
    return html('<h3>Parameters</h3><table class="parameters"><tr><th>Name<th>In<th>Form<th>Meaning{}</table>', rows)


def _form(schema: Json) -> Html:
    """The form of a value in a few words; shapes are links."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return html('<a href="#{}">{}</a>', name, _code(name))
    for combined in ("anyOf", "allOf"):
        if combined in schema:
            return _joined(" or ", [_form(each) for each in schema[combined] if each != {"type": "null"}])
    if schema.get("type") == "array":
        most = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
        return html("list of {}{}", _form(schema["items"]), most)
    if "const" in schema or "enum" in schema:
        words = _joined(" or ", [_code(json.dumps(each)) for each in schema.get("enum", [schema.get("const")])])
    else:
        bounds = f" {schema['minimum']} … {schema.get('maximum', '')}" if "minimum" in schema else ""
        words = html("{}{}", str(schema.get("type", "any")), bounds)
    default = html(", default {}", _code(json.dumps(schema["default"]))) if "default" in schema else None
    return html("{}{}", words, default)


def _example(schema: Json, document: Json) -> Any:
    if schema.get("type") == "array":
        return [_example(schema["items"], document)]
    if "anyOf" in schema:
        return _example(schema["anyOf"][0], document)
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return (schema.get("examples") or [None])[0]


def _curl(method: str, path: str, described: Json, document: Json) -> str:
    line = f"curl {'' if method == 'get' else f'-X {method.upper()} '}$URL{path}"
    for each in _headers(described, document)[:1]:
        line += f" -H '{each}: …'"
    content = described.get("requestBody", {}).get("content", {})
    if "multipart/form-data" in content:
        line += " -F file=@manifest.json -F file=@function.wasm"
    if "application/json" in content:
        example = json.dumps(_example(content["application/json"]["schema"], document), indent=2)
        line += f" -H 'content-type: application/json' -d '{example}'"
    return line


def _answers(responses: Json, document: Json) -> Html:
    rows: list[Html] = []
    for status, answer in responses.items():
        if int(status) >= HTTPStatus.BAD_REQUEST:  # problems are listed by their codes
            codes = answer["$ref"].rpartition("/")[2] if "$ref" in answer else answer["description"]
            links = [html('<a href="errors/{}">{}</a>', code, _code(code)) for code in codes.split(" · ")]
            rows.append(html("<tr><td>{}<td>{}", status, _joined(" · ", links)))
            continue
        content = answer.get("content", {})
        schema = content.get("application/json", {}).get("schema", {})
        forms = _form(schema) if schema else _joined(", ", [_code(media_type) for media_type in content])
        example = _example(schema, document)
        fields = [
            html("<p>{}: {}</p>", _code(name), _prose(field["description"]))
            for name, field in answer["headers"].items()
            if "$ref" not in field  # those that many answers have
        ]
        rows.append(html(
            "<tr><td>{}<td>{}{}{}{}{}", status, _prose(answer["description"]), ": " if forms else "", forms, fields,
            _pre(example) if example else None,
        ))  # fmt: skip
    return html("<h3>Answers</h3><table>{}</table>", rows)


def _shape(name: str, schema: Json) -> Html:
    required = schema.get("required", [])
    rows = [
        html(
            "<tr><td>{}<td>{}{}<td>{}", _code(member), _form(each), "" if member in required else ", optional",
            _prose(each.get("description", "")),
        )
        for member, each in schema.get("properties", {}).items()
    ]  # fmt: skip
    members = html("<table><tr><th>Member<th>Form<th>Meaning{}</table>", rows)
    return html(
        '<details><summary>{}<span>{}</span></summary><div id="{}">{}{}{}</div></details>',
        _code(name), _prose(schema.get("description", "")), name,
        members if rows else html("<p>{}</p>", _form(schema)),
        html("<p>Pattern {}</p>", _code(schema["pattern"])) if "pattern" in schema else None,
        [_pre(json.dumps(each, indent=2)) for each in schema.get("examples", [])[:1]],
    )  # fmt: skip


def _codes(document: Json) -> Html:
    rows = [
        html('<tr><td><a href="errors/{}">{}</a><td>{}<td>{}', code, _code(code), known["status"],
             _prose(known["meaning"]))
        for code, known in document["x-error-codes"].items()
    ]  # fmt: skip
    return html("<table><tr><th>Code<th>Status<th>Meaning{}</table>", rows)
