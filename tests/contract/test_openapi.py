"""The OpenAPI document is valid and complete, and its examples match its schemas."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from conformance import document
from each_row import each_row
from muniment.service.auth.caller import SECURITY_SCHEMES
from muniment.service.http.problems import all_refusals, status_of

DOCUMENT = document()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    f"{method.upper()} {path}": described
    for path, methods in DOCUMENT["paths"].items()
    for method, described in methods.items()
}
# Keywords whose values are JSON of any kind, not schemas.
_SAMPLES = {"examples", "default", "const", "enum"}
_STATUSES_OF_ALL = {"400", "414", "431", "500", "503"}

every_operation = each_row("described", OPERATIONS.values(), ids=OPERATIONS.keys())
every_component = each_row("name", SCHEMAS)


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """The target of a reference, or the node itself."""
    while "$ref" in node:
        _, *steps = node["$ref"].split("/")
        node = DOCUMENT
        for step in steps:
            node = node[step]
    return node


def inside(node: Any, *, follow: bool, seen: frozenset[str] = frozenset()) -> Iterator[dict[str, Any]]:
    """Every object in a part of the document; with `follow` also those that are referred to."""
    if isinstance(node, list):
        for each in node:
            yield from inside(each, follow=follow, seen=seen)
    elif isinstance(node, dict):
        yield node
        if follow and "$ref" in node and node["$ref"] not in seen:
            yield from inside(resolved(node), follow=True, seen=seen | {node["$ref"]})
        for key, value in node.items():
            if key not in _SAMPLES:
                yield from inside(value, follow=follow, seen=seen)


def test_the_document_is_valid_openapi_3_1() -> None:
    jsonschema_rs.Draft202012Validator(OPENAPI_31).validate(DOCUMENT)


def test_a_document_with_an_error_is_not_valid() -> None:
    wrong = copy.deepcopy(DOCUMENT)
    wrong["paths"]["/triggers"]["get"]["responses"]["200"].pop("description")
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.Draft202012Validator(OPENAPI_31).validate(wrong)


def test_every_reference_resolves_and_every_component_is_used() -> None:
    named = {node["$ref"] for node in inside(DOCUMENT, follow=False) if isinstance(node.get("$ref"), str)}
    assert all(resolved({"$ref": each}) for each in named)
    components = DOCUMENT["components"]
    assert {
        f"#/components/{kind}/{name}" for kind in ("schemas", "responses", "headers") for name in components[kind]
    } == named


def test_every_tag_is_described() -> None:
    tags = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}
    assert set(tags) == {described["tags"][0] for described in OPERATIONS.values()}
    assert all(tags.values())


def test_an_object_has_properties_or_is_declared_open() -> None:
    """Without either, generators make an object without members."""
    objects = [node for node in inside(DOCUMENT, follow=False) if node.get("type") == "object"]
    assert not [node for node in objects if not node.keys() & {"properties", "additionalProperties", "anyOf"}]
    assert SCHEMAS["Input"]["additionalProperties"] is True
    assert [node for node in objects if not set(node.get("required", ())) <= set(node.get("properties", ()))] == []


def test_no_member_has_a_default_that_generators_take_for_a_promise() -> None:
    for schema in SCHEMAS.values():
        assert not [name for name, member in schema.get("properties", {}).items() if "default" in member]
    members = SCHEMAS["TriggerParams"]["properties"]
    assert "Default: `1`" in members["minValidations"]["description"]
    assert 'Default: `"0"`' in members["executionFeeLimit"]["description"]


def test_a_list_in_a_query_may_come_as_one_parameter_or_as_many() -> None:
    lists = [each for described in OPERATIONS.values() for each in described["parameters"] if "style" in each]
    filters = ["owner", "signer", "functionCid", "user", "configSig", "settler", "types"]
    assert [each["name"] for each in lists] == ["sigs", "triggerSigs", "cids", *filters, *filters]
    assert all(each["explode"] for each in lists)
    assert {each["schema"]["maxItems"] for each in lists if each["name"] in filters} == {20}
    assert {each["schema"]["maxItems"] for each in lists if each["name"] not in filters} == {100}


def test_uploaded_files_have_the_format_binary() -> None:
    form = OPERATIONS["POST /functions"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["properties"]["file"]["items"]["format"] == "binary"


def test_a_list_of_signatures_names_each_once() -> None:
    assert SCHEMAS["Deactivation"]["properties"]["triggerSigs"]["uniqueItems"] is True


def test_the_path_of_a_tile_has_its_form() -> None:
    (schema,) = (
        each["schema"] for each in OPERATIONS["GET /log/{epoch}/tile/{tile}"]["parameters"] if each["name"] == "tile"
    )
    form = re.compile(resolved(schema)["pattern"])
    assert all(form.search(path) for path in ("0/000", "entries/x001/234.p/255", "7/x001/x002/003"))
    assert not any(form.search(path) for path in ("0/000/", "0/0", "x/000", "entries/001.p/", "0/000.p/0"))


def test_there_is_no_discriminator() -> None:
    assert not [node for node in inside(DOCUMENT, follow=False) if "discriminator" in node]


@every_operation
def test_an_operation_says_what_it_does(described: dict[str, Any]) -> None:
    assert 5 < len(described["summary"]) <= 80
    assert described["description"]
    assert described["operationId"]
    assert len(described["tags"]) == 1


def test_operation_ids_are_unique() -> None:
    names = [described["operationId"] for described in OPERATIONS.values()]
    assert len(set(names)) == len(names)


@every_operation
def test_an_operation_has_a_success_answer_and_its_error_codes(described: dict[str, Any]) -> None:
    answers = described["responses"]
    assert any(status in answers for status in ("200", "204", "303"))
    assert set(answers) >= _STATUSES_OF_ALL
    status_of_code = {refusal.code: str(status_of(refusal)) for refusal in all_refusals()}
    for status, answer in answers.items():
        assert resolved(answer)["description"]
        if int(status) >= 400:
            codes = resolved(answer)["content"]["application/json"]["schema"]["allOf"][1]["properties"]["code"]["enum"]
            assert codes
            assert {status_of_code[code] for code in codes} == {status}


@every_operation
def test_every_answer_has_a_schema(described: dict[str, Any]) -> None:
    for status, answer in described["responses"].items():
        content = resolved(answer).get("content", {})
        assert bool(content) == (status not in {"204", "303", "304"})
        assert all(media.get("schema") for media in content.values())


@every_operation
def test_an_operation_with_credentials_names_known_ones_and_says_401(described: dict[str, Any]) -> None:
    named = {name for each in described["security"] for name in each}
    assert named <= set(SECURITY_SCHEMES)
    if named:
        assert "401" in described["responses"]


@every_operation
def test_a_parameter_has_a_description_an_example_and_a_bound(described: dict[str, Any]) -> None:
    for parameter in described["parameters"]:
        schema = resolved(parameter["schema"])
        assert parameter.get("description") or schema.get("description"), parameter["name"]
        assert _has_sample(schema), parameter["name"]
        if (
            parameter["in"] != "header"
        ):  # fields of HTTP itself: their grammar is elsewhere, their length is bounded for all
            assert not [each for each in inside(schema, follow=True) if not _is_bounded(each)], parameter["name"]


@every_operation
def test_everything_in_a_body_is_bounded(described: dict[str, Any]) -> None:
    for content in described.get("requestBody", {}).get("content", {}).values():
        assert not [each for each in inside(content["schema"], follow=True) if not _is_bounded(each)]


def _has_sample(schema: dict[str, Any]) -> bool:
    items = schema.get("items")
    return (
        bool(schema.keys() & _SAMPLES)
        or schema.get("type") == "boolean"
        or bool(items and _has_sample(resolved(items)))
    )


def _is_bounded(schema: dict[str, Any]) -> bool:
    """Whether a schema bounds the length or size of its value."""
    if schema.keys() & {"enum", "const"}:
        return True
    kind = schema.get("type")
    if kind == "string":
        return bool(schema.keys() & {"pattern", "maxLength", "contentMediaType"})
    if kind == "integer":
        return schema.keys() >= {"minimum", "maximum"}
    return kind != "array" or "maxItems" in schema


@every_component
def test_a_component_has_an_example(name: str) -> None:
    assert SCHEMAS[name].get("examples") or SCHEMAS[name].keys() & {"enum", "not"}


@every_component
def test_the_examples_of_a_component_match_its_schema(name: str) -> None:
    validator = _validator({"$ref": f"#/components/schemas/{name}"})
    for example in SCHEMAS[name].get("examples", []):
        validator.validate(example)


@every_operation
def test_the_examples_of_parameters_match_their_schemas(described: dict[str, Any]) -> None:
    for parameter in described["parameters"]:
        validator = _validator(parameter["schema"])
        schema = resolved(parameter["schema"])
        for example in [*schema.get("examples", []), *([schema["default"]] if "default" in schema else [])]:
            validator.validate(example)


def _validator(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENT["components"]}, validate_formats=True)
