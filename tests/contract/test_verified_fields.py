"""docs/reference/verified-fields.md has every field of every record that the interface answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from golden import ROOT

from conformance import document

PAGE = ROOT / "docs" / "reference" / "verified-fields.md"
_WORDS = ("signature", "CID", "hash", "log", "key", "claim", "not read", "of a deactivation")


def records(of: dict[str, Any]) -> dict[str, set[str]]:
    """Fields by record, for all records in 2xx answers, nested ones included."""
    schemas: dict[str, Any] = of["components"]["schemas"]
    found: set[str] = set()
    waiting = [
        answer["content"]
        for operations in of["paths"].values()
        for operation in operations.values()
        if isinstance(operation, dict)
        for status, answer in operation["responses"].items()
        if status.startswith("2") and "content" in answer
    ]
    while waiting:
        for name in {*_named(waiting.pop())} - found:
            found.add(name)
            waiting.append(schemas[name])
    return {name: {*_fields(schemas[name])} for name in found if "properties" in schemas[name]}


def _named(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for value in schema.values():
            yield from _named(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _named(value)


def _fields(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Names of fields; a field of a nested object is `object.field`."""
    for name, inner in schema.get("properties", {}).items():
        yield prefix + name
        yield from _fields(inner, f"{prefix}{name}.")
        yield from _fields(inner.get("items", {}), f"{prefix}{name}.")


def described(page: str) -> dict[str, dict[str, str]]:
    """The check of each field by record, from the page."""
    found: dict[str, dict[str, str]] = {}
    for record, names, said in re.findall(r"^\| (\w+) \| (`[^|]*`) \| ([^|]+) \|$", page, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", names):
            assert name not in found.setdefault(record, {}), f"{record} has the field {name} twice"
            found[record][name] = said
    return found


def missing(of: dict[str, Any], page: str) -> list[str]:
    """Fields that only one of the two has."""
    shown = {f"{record}.{field}" for record, fields in records(of).items() for field in fields}
    told = {f"{record}.{field}" for record, fields in described(page).items() for field in fields}
    return sorted(shown ^ told)


def test_the_page_has_every_field_that_the_interface_shows_and_no_other() -> None:
    assert missing(document(), PAGE.read_text("utf-8")) == []


def test_every_check_has_a_word_that_the_page_explains() -> None:
    for record, fields in described(PAGE.read_text("utf-8")).items():
        for field, said in fields.items():
            assert said.startswith(_WORDS), f"{record}.{field}: {said}"


def test_a_new_field_or_record_is_noticed() -> None:
    def shown(schemas: dict[str, Any]) -> dict[str, Any]:
        content = {"application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/One"}}}}
        answers = {"200": {"content": content}, "400": {"content": {"$ref": "#/components/schemas/Problem"}}, "204": {}}
        return {"paths": {"/ones": {"get": {"responses": answers}}}, "components": {"schemas": schemas}}

    page = "# Page\n| record | fields | checked by |\n|---|---|---|\n| One | `a`, `b` | log |\n"
    one = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    text = {"type": "string"}
    assert missing(shown({"One": one, "Unused": one}), page) == []
    for more in (text, {"items": {"properties": {"inner": text}}}, {"$ref": "#/components/schemas/Two"}):
        wider = {"properties": {**one["properties"], "c": more}}
        assert "One.c" in missing(shown({"One": wider, "Two": {"properties": {"d": text}}}), page)
    two = {"properties": {"a": text, "b": {"anyOf": [{"$ref": "#/components/schemas/Two"}]}}}
    assert missing(shown({"One": two, "Two": {"properties": {"d": text}}}), page) == ["Two.d"]
    assert missing(shown({"One": {"properties": {"a": text}}}), page) == ["One.b"]
