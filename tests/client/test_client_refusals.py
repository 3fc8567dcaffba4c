"""Each refusal of the service is the same class at the client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from feeding import answer

from muniment.client import Forged, NotARegistry, Reply
from muniment.client.answers import check_answered, decode_form, refusal_of
from muniment.protocol import errors
from muniment.protocol.errors import Fault, Refusal
from muniment.protocol.intents.types import AnyIntent
from muniment.protocol.users.types import NonceResult
from muniment.service.http.problems import all_refusals, problem, status_of

# Members of problem documents, among them those that some refusals must have.
FACTS = {"computed": "0x", "size": 7, "policy": "login", "quota": 5, "window": 60, "retryAfter": 9}


def through_http(refusal: Refusal) -> Reply:
    """The exception of a client if the service raises `refusal`."""
    shown = problem(refusal, "request-1", "")
    headers = {name.decode().lower(): value.decode() for name, value in shown.headers}
    return Reply(shown.status, headers, shown.body)


@pytest.mark.parametrize("kind", all_refusals(), ids=lambda kind: kind.code)
def test_a_refusal_comes_back_as_its_own_class(kind: type[Refusal]) -> None:
    faults = [Fault("too late", "/when"), Fault("wrong", None, "limit")]
    raised = kind("not today", faults=faults, facts=FACTS)
    reply = through_http(raised)
    with pytest.raises(kind) as caught:
        check_answered(reply)
    found = caught.value
    assert type(found) is kind
    assert (found.detail, found.faults) == (raised.detail, raised.faults)
    assert found.facts.items() >= FACTS.items()
    assert found.answer is reply
    assert found.facts["requestId"] == "request-1"
    assert reply.status == status_of(kind)


@pytest.mark.parametrize(
    ("status", "family"),
    [
        (400, errors.Invalid), (401, errors.Unauthenticated), (403, errors.Forbidden), (404, errors.Absent),
        (408, errors.RequestTimeout), (409, errors.Conflicting), (413, errors.TooLarge), (418, errors.Invalid),
        (429, errors.Limited), (500, errors.Broken), (502, errors.Unavailable), (503, errors.Unavailable),
        (504, errors.Unavailable), (507, errors.Broken), (999, errors.Broken),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "content", [b'{"code": "of-tomorrow", "detail": "no"}', b"{}", b"", b'{"code": 7, "errors": 8}']
)
def test_an_unknown_code_is_the_family_of_its_status(status: int, family: type[Refusal], content: bytes) -> None:
    found = refusal_of(Reply(status, {}, content))
    assert type(found) is family
    assert found.detail == ("no" if b"detail" in content else f"status {status}")
    assert found.code == ("of-tomorrow" if b"of-tomorrow" in content else "")


@pytest.mark.parametrize("status", [*range(400, 419), 451, *range(500, 512), 520])
def test_a_page_of_html_is_named(status: int) -> None:
    page = b"<html>\r\n  <title>502 Bad Gateway</title>\n" + b"\xff" * 10_000
    found = refusal_of(Reply(status, {"content-type": "text/html"}, page))
    assert found.detail.startswith(
        "not a problem document: <html> <title>502 Bad Gateway</title> \N{REPLACEMENT CHARACTER}"
    )
    assert len(found.detail) < 300
    assert (found.code, str(found)) == ("", found.detail)


@pytest.mark.parametrize("code", ["", "Spaces here", "line\nbreak", "x" * 10_000, "\u202e", "\x1b[31m"])
def test_a_code_of_another_form_is_none(code: str) -> None:
    assert refusal_of(Reply(400, {}, json.dumps({"code": code}).encode())).code == ""


@pytest.mark.parametrize("status", [100, 199, 300, 301, 302, 304, 307, 308, 399])
def test_an_answer_that_is_neither_done_nor_refused_is_not_by_a_registry(status: int) -> None:
    with pytest.raises(NotARegistry, match=f"status {status} and sends on to https://elsewhere.example"):
        check_answered(answer({}, status, location="https://elsewhere.example"))


@pytest.mark.parametrize("kind", ["text/html", "Text/HTML; charset=utf-8", "application/xhtml+xml"])
def test_a_page_is_not_by_a_registry_whatever_its_content(kind: str) -> None:
    with pytest.raises(NotARegistry, match="the service answers with a page of HTML"):
        check_answered(answer({}, content_type=kind))


SIGNED = {"address": "0x" + "ab" * 20, "nonce": "0x" + "12" * 32}


@pytest.mark.parametrize(
    ("content", "kind", "failure"),
    [
        ({"status": "ok"}, NonceResult, NotARegistry), ([SIGNED], NonceResult, NotARegistry),
        (SIGNED, list[NonceResult], NotARegistry), ([SIGNED, {"nonce": ""}], list[NonceResult], NotARegistry),
        ({}, AnyIntent, NotARegistry), ({**SIGNED, "address": "0x12"}, NonceResult, Forged),
        ([SIGNED, {**SIGNED, "nonce": 7}], list[NonceResult], Forged),
    ],
)  # fmt: skip
def test_json_of_another_outline_is_not_by_a_registry_and_a_malformed_member_is_forged(
    content: object, kind: Any, failure: type[Exception]
) -> None:
    with pytest.raises(failure):
        decode_form(answer(content), kind)
