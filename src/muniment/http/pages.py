"""Pages for people: the reference of all operations and one page per error code. No script, nothing from elsewhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any, Final

from muniment.errors import UnknownPath
from muniment.http.reply import Ready

_STYLE: Final = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--get:#1a7f5a;--post:#2457c5}
body{font:16px/1.55 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:2rem 1rem 6rem}
h1{font-size:1.7rem;margin:0 0 .3rem}h2{margin:2.5rem 0 .5rem;text-transform:capitalize}
code,pre{font:13.5px/1.5 ui-monospace,monospace}
pre{background:var(--soft);padding:.8rem;overflow:auto;border-radius:6px}
details{border:1px solid var(--line);border-radius:6px;margin:.45rem 0;padding:.45rem .8rem}
summary{cursor:pointer}summary code{font-weight:600}summary span{opacity:.75;margin-left:.6rem}
b.get{color:var(--get)}b.post{color:var(--post)}b{display:inline-block;min-width:3.2rem}
table{border-collapse:collapse;width:100%;margin:.6rem 0}a{color:inherit}
td,th{text-align:left;vertical-align:top;padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line)}
th{font-weight:600;font-size:.85rem;opacity:.75}
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
    by_tag: dict[str, str] = {tag["name"]: "" for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            by_tag[described["tags"][0]] += _operation(method, path, described, document)
    sections = [f"<h2>{escape(tag)}</h2>{operations}" for tag, operations in by_tag.items()]
    body = (
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1><p>{escape(info['description'])}</p>"
        f'<p>Machine-readable: <a href="/openapi.json">/openapi.json</a> (OpenAPI 3.1).</p>{"".join(sections)}'
        f"<h2>Errors</h2>{_codes(document)}"
    )
    return _page(f"{info['title']}: reference", body)


def error_page(code: str, document: Json) -> Ready[bytes]:
    """The page that a problem's `type` leads to. Raises `UnknownPath` for what is no code."""
    known = document["x-error-codes"].get(code)
    if known is None:
        raise UnknownPath("there is no such error code; /docs lists them all")
    body = (
        f"<h1>{escape(known['title'])}</h1><p><code>{escape(code)}</code>, status {known['status']}</p>"
        f'<p>{escape(known["meaning"])}</p><p><a href="/docs">All operations and codes</a></p>'
    )
    return _page(f"{known['title']} ({code})", body)


def _page(title: str, body: str) -> Ready[bytes]:
    html = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><body>{body}"
    )
    return Ready(html.encode(), _HEADERS)


def _operation(method: str, path: str, described: Json, document: Json) -> str:
    parts = [f"<p>{escape(described['description'])}</p>"]
    if security := described.get("security"):
        schemes = document["components"]["securitySchemes"]
        names = [schemes[name].get("name", "Authorization: Bearer") for each in security for name in each]
        parts.append(f"<p>Credential: {' or '.join(f'<code>{escape(name)}</code>' for name in names)}</p>")
    if described["parameters"]:
        parts.append(_parameters(described["parameters"]))
    example = _body_example(described, document)
    parts.append(f"<pre>{escape(_curl(method, path, described, example))}</pre>")
    parts.append(_answers(described["responses"], document))
    return (
        f'<details id="{described["operationId"]}"><summary><b class="{method}">{method.upper()}</b> '
        f"<code>{escape(path)}</code><span>{escape(described['summary'])}</span></summary>{''.join(parts)}</details>"
    )


def _parameters(parameters: list[Json]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>"
        f"{escape(each.get('description') or each['schema'].get('description', ''))}"
        f"<td><code>{escape(_bounds(each['schema']))}</code>"
        for each in parameters
    )
    return f"<table><tr><th>Parameter<th>In<th>Meaning<th>Form{rows}</table>"


def _bounds(schema: Json) -> str:
    kept = {
        name: schema[name] for name in ("type", "minimum", "maximum", "maxItems", "enum", "default") if name in schema
    }
    return ", ".join(value if name == "type" else f"{name} {value}" for name, value in kept.items())


def _schema_example(schema: Json, document: Json) -> Any:
    name = schema.get("$ref", schema.get("anyOf", [{}])[0].get("$ref", "")).rpartition("/")[2]
    if schema.get("type") == "array":
        return [_schema_example(schema["items"], document)]
    return (document["components"]["schemas"].get(name, {}).get("examples") or [None])[0]


def _body_example(described: Json, document: Json) -> str | None:
    content = described.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return None
    return json.dumps(_schema_example(content["application/json"]["schema"], document))


def _curl(method: str, path: str, described: Json, example: str | None) -> str:
    line = f"curl {'' if method == 'get' else f'-X {method.upper()} '}$URL{path}"
    for each in described.get("security", [])[:1]:
        line += " -H 'x-api-key: …'" if "apiKey" in each else " -H 'x-auth-token: …'"
    if "multipart/form-data" in described.get("requestBody", {}).get("content", {}):
        line += " -F file=@manifest.json -F file=@function.wasm"
    if example:
        line += f" \\\n  -H 'content-type: application/json' -d '{example}'"
    return line


def _answers(responses: Json, document: Json) -> str:
    rows: list[str] = []
    for status, answer in responses.items():
        content = answer.get("content", {})
        shape = _schema_example(content.get("application/json", {}).get("schema", {}), document)
        shown = f"<pre>{escape(json.dumps(shown_value, indent=2))}</pre>" if (shown_value := shape) else ""
        if int(status) >= 400:  # noqa: PLR2004 - problems are listed by their codes
            codes = answer["description"].split(" · ")
            shown = " ".join(f'<a href="/errors/{code}"><code>{code}</code></a>' for code in codes)
            rows.append(f"<tr><td>{status}<td>{shown}")
        else:
            rows.append(f"<tr><td>{status}<td>{escape(answer['description'])} {', '.join(content)}{shown}")
    return f"<table><tr><th>Status<th>Answer{''.join(rows)}</table>"


def _codes(document: Json) -> str:
    rows = "".join(
        f'<tr><td><a href="/errors/{code}"><code>{code}</code></a><td>{known["status"]}<td>{escape(known["meaning"])}'
        for code, known in document["x-error-codes"].items()
    )
    return f"<table><tr><th>Code<th>Status<th>Meaning{rows}</table>"
