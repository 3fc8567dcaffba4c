"""Pages for people: the reference of all operations and one page per error code. No script, nothing from elsewhere."""

from __future__ import annotations

import json
import re
from html import escape
from http import HTTPStatus
from typing import Any, Final

from muniment.errors import UnknownPath
from muniment.http.html.frame import Page, plain
from muniment.http.html.markup import Html
from muniment.http.reply import Ready

# What the reference has besides the frame.
_STYLE: Final = """
:root{--get:#16734f;--post:#2457c5;--put:#8a5a00}
@media(prefers-color-scheme:dark){:root{--get:#4ec796;--post:#82a8f8;--put:#e0b35c}}
main{max-width:70rem}h1 small{font-size:1rem;color:var(--faint);font-weight:400}
details{border:1px solid var(--line);border-radius:4px;padding:0 14px;background:var(--leaf)}
details[open]{padding-bottom:14px}details>div{scroll-margin-top:4rem}main pre{max-height:26rem;overflow:auto}
summary{padding:8px 0;display:flex;gap:14px;align-items:baseline;list-style:none;color:var(--ink)}
summary::-webkit-details-marker{display:none}summary:hover code{text-decoration:underline}
summary code{font-weight:600;overflow-wrap:anywhere}summary span{color:var(--faint);margin-left:auto;text-align:right}
.get{color:var(--get)}.post{color:var(--post)}.put{color:var(--put)}summary b{min-width:3rem;font-size:12px}
.contents{columns:3 15rem;margin:14px 0;padding:14px 21px;background:var(--soft);border-radius:4px}
.contents div{break-inside:avoid;margin-bottom:14px}.contents a{display:block;padding:2px 0;overflow-wrap:anywhere}
td:first-child{white-space:nowrap}main td a{display:inline-block;min-height:24px}
@media(max-width:44rem){summary{flex-wrap:wrap}summary span{margin:0;text-align:left;width:100%}
td:first-child{white-space:normal}main table{display:block;overflow-x:auto}}
"""

Json = dict[str, Any]


def reference_page(document: Json, *, has_console: bool) -> Ready[bytes]:
    """The OpenAPI document as a page; with `has_console` its frame leads to the console."""
    info = document["info"]
    sections = "".join(
        f'<h2 id="{tag}">{_heading(tag)}</h2>{"".join(_operation(*each, document) for each in operations)}'
        for tag, operations in _by_tag(document).items()
    )
    body = (
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1><p>{_prose(info['description'])}</p>"
        f'<p>For programs: <a href="openapi.json">/openapi.json</a> (OpenAPI 3.1).</p>{_contents(document)}'
        f'<h2 id="credentials">Credentials</h2>{_credentials(document)}{sections}'
        f'<h2 id="shapes">Shapes</h2>{_shapes(document)}<h2 id="errors">Errors</h2>{_codes(document)}'
    )
    return _page(f"{info['title']}: reference", body, "./", has_console=has_console)


def error_page(code: str, document: Json, *, has_console: bool) -> Ready[bytes]:
    """The page at the `type` of a problem. Raises `UnknownPath` for an unknown code."""
    known = document["x-error-codes"].get(code)
    if known is None:
        raise UnknownPath("there is no such error code; /docs lists them all")
    body = (
        f"<h1>{escape(known['title'])}</h1><p><code>{escape(code)}</code>, status {known['status']}</p>"
        f'<p>{_prose(known["meaning"])}</p><p><a href="../docs#errors">All operations and codes</a></p>'
    )
    return _page(f"{known['title']} ({code})", body, "../", has_console=has_console)


def _page(title: str, body: str, root: str, *, has_console: bool) -> Ready[bytes]:
    return plain(Page(title, Html(body), "docs"), root, has_console=has_console, style=_STYLE)


def _prose(text: str) -> str:
    """Text in which `words` of code stand between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _by_tag(document: Json) -> dict[str, list[tuple[str, str, Json]]]:
    by_tag: dict[str, list[tuple[str, str, Json]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            by_tag[described["tags"][0]].append((method, path, described))
    return by_tag


def _heading(tag: str) -> str:
    return {"app": "The service itself"}.get(tag, escape(tag.capitalize()))


def _contents(document: Json) -> str:
    groups = "".join(
        f"<div><strong>{_heading(tag)}</strong>{''.join(_content(*each) for each in operations)}</div>"
        for tag, operations in _by_tag(document).items()
    )
    rest = "".join(f'<a href="#{name}">{name.capitalize()}</a>' for name in ("credentials", "shapes", "errors"))
    return f'<nav class="contents" aria-label="Contents">{groups}<div><strong>And</strong>{rest}</div></nav>'


def _content(method: str, path: str, described: Json) -> str:
    return (
        f'<a href="#{described["operationId"]}"><code><span class="{method}">{method.upper()}</span> '
        f"{escape(path)}</code></a>"
    )


def _credentials(document: Json) -> str:
    rows = [
        f"<tr><td><code>{escape(_header(scheme))}</code><td>{_prose(scheme['description'])}"
        for scheme in document["components"]["securitySchemes"].values()
    ]
    return f"<table><tr><th>Header<th>What it carries{''.join(rows)}</table>"


def _header(scheme: Json) -> str:
    return scheme.get("name", "Authorization: Bearer")


# A link opens closed details when its target is inside (HTML, ancestor revealing algorithm): ids are on the content.
def _operation(method: str, path: str, described: Json, document: Json) -> str:
    parts = [f"<p>{_prose(described['description'])}</p>"]
    if security := described.get("security"):
        schemes = document["components"]["securitySchemes"]
        names = [f"<code>{escape(_header(schemes[name]))}</code>" for each in security for name in each]
        parts.append(f"<p>Credential: {' or '.join(names)}</p>")
    if described["parameters"]:
        parts.append(_parameters(described["parameters"]))
    for media_type, content in described.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<h3>Body</h3><p><code>{escape(media_type)}</code>: {_form(content['schema'])}</p>")
    parts.append(f"<h3>Try it</h3><pre>{escape(_curl(method, path, described, document))}</pre>")
    parts.append(_answers(described["responses"], document))
    return (
        f'<details><summary><b class="{method}">{method.upper()}</b>'
        f"<code>{escape(path)}</code><span>{_prose(described['summary'])}</span></summary>"
        f'<div id="{described["operationId"]}">{"".join(parts)}</div></details>'
    )


def _parameters(parameters: list[Json]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{_form(each['schema'])}"
        f"<td>{_prose(each.get('description') or each['schema'].get('description', ''))}"
        for each in parameters
    )
    return f"<h3>Parameters</h3><table><tr><th>Name<th>In<th>Form<th>Meaning{rows}</table>"


def _form(schema: Json) -> str:
    """The form of a value in a few words; shapes are links."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}"><code>{name}</code></a>'
    for combined in ("anyOf", "allOf"):
        if combined in schema:
            return " or ".join(_form(each) for each in schema[combined] if each != {"type": "null"})
    if schema.get("type") == "array":
        most = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
        return f"list of {_form(schema['items'])}{most}"
    if "const" in schema or "enum" in schema:
        words = " or ".join(
            f"<code>{escape(json.dumps(each))}</code>" for each in schema.get("enum", [schema.get("const")])
        )
    else:
        words = escape(str(schema.get("type", "any")))
        if "minimum" in schema:
            words += f" {schema['minimum']} … {schema.get('maximum', '')}"
    return words + (f", default <code>{escape(json.dumps(schema['default']))}</code>" if "default" in schema else "")


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
    for each in described.get("security", [])[:1]:
        line += f" -H '{_header(document['components']['securitySchemes'][next(iter(each))])}: …'"
    content = described.get("requestBody", {}).get("content", {})
    if "multipart/form-data" in content:
        line += " -F file=@manifest.json -F file=@function.wasm"
    if "application/json" in content:
        example = json.dumps(_example(content["application/json"]["schema"], document), indent=2)
        line += f" -H 'content-type: application/json' -d '{example}'"
    return line


def _answers(responses: Json, document: Json) -> str:
    rows: list[str] = []
    for status, answer in responses.items():
        if int(status) >= HTTPStatus.BAD_REQUEST:  # problems are listed by their codes
            codes = answer["$ref"].rpartition("/")[2] if "$ref" in answer else answer["description"]
            links = (f'<a href="errors/{escape(code)}"><code>{escape(code)}</code></a>' for code in codes.split(" · "))
            rows.append(f"<tr><td>{status}<td>{' · '.join(links)}")
            continue
        content = answer.get("content", {})
        schema = content.get("application/json", {}).get("schema", {})
        forms = _form(schema) if schema else ", ".join(f"<code>{escape(media_type)}</code>" for media_type in content)
        example = _example(schema, document)
        shown = f"<pre>{escape(json.dumps(example, indent=2))}</pre>" if example else ""
        fields = "".join(
            f"<p><code>{escape(name)}</code>: {_prose(field['description'])}</p>"
            for name, field in answer["headers"].items()
            if "$ref" not in field  # those that many answers have
        )
        rows.append(f"<tr><td>{status}<td>{_prose(answer['description'])}{forms and ': '}{forms}{fields}{shown}")
    return f"<h3>Answers</h3><table>{''.join(rows)}</table>"


def _shapes(document: Json) -> str:
    return "".join(_shape(name, schema) for name, schema in sorted(document["components"]["schemas"].items()))


def _shape(name: str, schema: Json) -> str:
    required = schema.get("required", [])
    rows = "".join(
        f"<tr><td><code>{escape(member)}</code><td>{_form(each)}{'' if member in required else ', optional'}"
        f"<td>{_prose(each.get('description', ''))}"
        for member, each in schema.get("properties", {}).items()
    )
    members = f"<table><tr><th>Member<th>Form<th>Meaning{rows}</table>" if rows else f"<p>{_form(schema)}</p>"
    pattern = f"<p>Pattern <code>{escape(schema['pattern'])}</code></p>" if "pattern" in schema else ""
    examples = "".join(f"<pre>{escape(json.dumps(each, indent=2))}</pre>" for each in schema.get("examples", [])[:1])
    about = _prose(schema.get("description", ""))
    return (
        f"<details><summary><code>{escape(name)}</code><span>{about}</span></summary>"
        f'<div id="{escape(name)}">{members}{pattern}{examples}</div></details>'
    )


def _codes(document: Json) -> str:
    rows = "".join(
        f'<tr><td><a href="errors/{code}"><code>{code}</code></a><td>{known["status"]}<td>{_prose(known["meaning"])}'
        for code, known in document["x-error-codes"].items()
    )
    return f"<table><tr><th>Code<th>Status<th>Meaning{rows}</table>"
