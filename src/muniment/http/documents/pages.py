"""Pages for people: the reference of all operations and one page per error code. No script, nothing from elsewhere."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any, Final

from muniment.errors import UnknownPath
from muniment.http.reply import Ready

_STYLE: Final = """
:root{color-scheme:light dark;--line:#8883;--soft:#8881;--quiet:#6b7280}
:root{--get:#16734f;--post:#2457c5;--put:#8a5a00;--link:#2457c5}
@media(prefers-color-scheme:dark){:root{--quiet:#9ca3af;--get:#4ec796;--post:#82a8f8;--put:#e0b35c;--link:#82a8f8}}
*{box-sizing:border-box}html{scroll-padding-top:1rem}
body{font:16px/1.55 system-ui,sans-serif;max-width:66rem;margin:0 auto;padding:2rem 1.25rem 6rem}
h1{font-size:1.8rem;margin:0 0 .4rem}h1 small{font-size:1rem;color:var(--quiet);font-weight:400}
h2{font-size:1.25rem;margin:2.6rem 0 .6rem}h3{font-size:.95rem;margin:1.2rem 0 .3rem}
p{margin:.5rem 0;max-width:46rem}a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
code,pre{font:13px/1.55 ui-monospace,monospace}td code{overflow-wrap:anywhere}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
pre{background:var(--soft);padding:.75rem 1rem;margin:.4rem 0;overflow:auto;border-radius:6px;max-height:26rem}
details{border:1px solid var(--line);border-radius:8px;margin:.5rem 0;padding:0 1rem}
details[open]{padding-bottom:1rem}details>div{scroll-margin-top:4rem}
summary{cursor:pointer;padding:.55rem 0;display:flex;gap:.8rem;align-items:baseline;list-style:none}
summary::-webkit-details-marker{display:none}summary:hover code{text-decoration:underline}
summary code{font-weight:600}summary span{color:var(--quiet);margin-left:auto;text-align:right}
.get{color:var(--get)}.post{color:var(--post)}.put{color:var(--put)}summary b{min-width:3rem;font-size:.8rem}
nav{columns:3 15rem;margin:1rem 0;padding:1rem 1.2rem;background:var(--soft);border-radius:8px}
nav div{break-inside:avoid;margin-bottom:.8rem}nav a{display:block;font-size:.9rem}nav strong{font-size:.8rem}
table{border-collapse:collapse;width:100%;margin:.3rem 0;font-size:.92rem}
td,th{text-align:left;vertical-align:top;padding:.35rem .8rem .35rem 0;border-bottom:1px solid var(--line)}
th{font-weight:600;font-size:.8rem;color:var(--quiet)}td:first-child{white-space:nowrap}
@media(max-width:40rem){summary{flex-wrap:wrap}summary span{margin:0;text-align:left;width:100%}
td:first-child{white-space:normal}}
"""
_CSP: Final = (
    b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _CSP),
    (b"referrer-policy", b"no-referrer"),
)  # fmt: skip

Json = dict[str, Any]


def reference_page(document: Json) -> Ready[bytes]:
    """The OpenAPI document as a page."""
    info = document["info"]
    sections = "".join(
        f'<h2 id="{tag}">{_heading(tag)}</h2>{"".join(_operation(*each, document) for each in operations)}'
        for tag, operations in _by_tag(document).items()
    )
    body = (
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1><p>{_prose(info['description'])}</p>"
        f'<p>For programs: <a href="/openapi.json">/openapi.json</a> (OpenAPI 3.1).</p>{_contents(document)}'
        f'<h2 id="credentials">Credentials</h2>{_credentials(document)}{sections}'
        f'<h2 id="shapes">Shapes</h2>{_shapes(document)}<h2 id="errors">Errors</h2>{_codes(document)}'
    )
    return _page(f"{info['title']}: reference", body)


def error_page(code: str, document: Json) -> Ready[bytes]:
    """The page at the `type` of a problem. Raises `UnknownPath` for an unknown code."""
    known = document["x-error-codes"].get(code)
    if known is None:
        raise UnknownPath("there is no such error code; /docs lists them all")
    body = (
        f"<h1>{escape(known['title'])}</h1><p><code>{escape(code)}</code>, status {known['status']}</p>"
        f'<p>{_prose(known["meaning"])}</p><p><a href="/docs#errors">All operations and codes</a></p>'
    )
    return _page(f"{known['title']} ({code})", body)


def _page(title: str, body: str) -> Ready[bytes]:
    html = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><body>{body}"
    )
    return Ready(html.encode(), _HEADERS)


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
    return f"<nav>{groups}<div><strong>And</strong>{rest}</div></nav>"


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
        if int(status) >= 400:  # noqa: PLR2004 - problems are listed by their codes
            codes = answer["$ref"].rpartition("/")[2] if "$ref" in answer else answer["description"]
            links = (f'<a href="/errors/{escape(code)}"><code>{escape(code)}</code></a>' for code in codes.split(" · "))
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
        f'<tr><td><a href="/errors/{code}"><code>{code}</code></a><td>{known["status"]}<td>{_prose(known["meaning"])}'
        for code, known in document["x-error-codes"].items()
    )
    return f"<table><tr><th>Code<th>Status<th>Meaning{rows}</table>"
