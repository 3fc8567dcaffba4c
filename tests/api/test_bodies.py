"""The bodies that every operation with a JSON body refuses, and those that it accepts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest

from builders import Wallet, log_in
from conformance import operation_at
from without_server import Pieces, request_of

pytestmark = pytest.mark.one_engine

# Operations with a JSON body, each with a member that its body has.
PATHS = {
    "/users/nonce": "address",
    "/users/authenticate": "signature",
    "/users/api-key/rotate": "graceSeconds",
    "/triggers": "sig",
    "/triggers/sign-params": "version",
    "/triggers/preview": "version",
    "/triggers/deactivate": "triggerSigs",
    "/triggers/deactivate/sign-params": "triggerSigs",
}
BODY_BYTES_MAX = 256 * 1024

Unchanged = Callable[[], Any]
Content = bytes | AsyncIterator[bytes]
Post = Callable[..., Awaitable[httpx2.Response]]


@pytest.fixture
async def token(client: httpx2.AsyncClient) -> str:
    return await log_in(client, Wallet())


@pytest.fixture
def post(client: httpx2.AsyncClient, token: str) -> Post:
    """Post content for which nothing may be stored: see `nothing_stored`."""

    async def send(path: str, content: Content, media_type: str | None = "application/json") -> httpx2.Response:
        headers = {"x-auth-token": token} | ({"content-type": media_type} if media_type else {})
        return await client.post(path, content=content, headers=headers)

    return send


async def refuse(
    post: Post, status: int, code: str, content: bytes, media_type: str | None = "application/json"
) -> None:
    """Every operation must give `content` this answer."""
    answers = {path: await post(path, content, media_type) for path in PATHS}
    found = {path: (answer.status_code, answer.json()["code"]) for path, answer in answers.items()}
    assert found == dict.fromkeys(PATHS, (status, code))


def test_every_operation_named_here_takes_a_json_body() -> None:
    for path in PATHS:
        found = operation_at("POST", path)
        assert found is not None
        assert "body" in found.hints


NO_OBJECTS = [
    ("array", b"[]", "invalid-body"),
    ("string", b'"x"', "invalid-body"),
    ("number", b"5", "invalid-body"),
    ("boolean", b"true", "invalid-body"),
    ("truncated", b'{"a":', "invalid-json"),
    ("truncated at once", b"{", "invalid-json"),
    ("trailing garbage", b"{} x", "invalid-json"),
    ("two texts", b"{}{}", "invalid-json"),
    ("trailing comma", b"{},", "invalid-json"),
    ("single quotes", b"{'a': 1}", "invalid-json"),
    ("byte order mark", b"\xef\xbb\xbf{}", "invalid-json"),
    ("UTF-16", '{"a":1}'.encode("utf-16"), "invalid-json"),
    ("not UTF-8", b'{"a":"\xff"}', "invalid-json"),
    ("half a surrogate pair", b'{"a":"\\ud800"}', "invalid-json"),
    ("NaN", b'{"a":NaN}', "invalid-json"),
    ("beyond a double", b'{"a":1e999}', "invalid-json"),
    ("5,000 digits", b'{"a":' + b"1" * 5000 + b"}", "invalid-json"),
    ("66 levels", b'{"a":' + b"[" * 65 + b"]" * 65 + b"}", "invalid-json"),
    ("100,000 brackets", b"[" * 100_000, "invalid-json"),
    ("NUL", b"\0", "invalid-json"),
    ("HTML", b"<html></html>", "invalid-json"),
]


async def test_a_body_that_is_not_a_json_object_is_400(
    post: Post, nothing_stored: Unchanged, subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for row, content, code in NO_OBJECTS:
            with subtests.test(row):
                await refuse(post, 400, code, content)


async def test_a_missing_body_is_400(post: Post, nothing_stored: Unchanged) -> None:
    async with nothing_stored():
        for path in [path for path in PATHS if path != "/users/api-key/rotate"]:
            assert (await post(path, b" ")).json()["code"] == "invalid-json", path
            for content, media_type in ((b"", "application/json"), (b"", None), (b"null", "application/json")):
                response = await post(path, content, media_type)
                assert (response.status_code, response.json()["code"]) == (400, "invalid-body"), path


OTHER_TYPES = [
    None,
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/json; charset=utf-16",
    "application/json; charset=latin-1",
    "application/jsonp",
    "application/json-patch+json",
    "text/json",
    "application/octet-stream",
    "x" * 2000,
    "application/json; charset=utf-8; charset=utf-16",
    'application/json; charset="utf-16"',
    "application/json; charset=",
    "application/json; charset",
    "application/json; charset*=iso-8859-1''x",
    "; application/json",
    "application/json, application/json",
]


async def test_another_media_type_is_415(post: Post, nothing_stored: Unchanged, subtests: pytest.Subtests) -> None:
    async with nothing_stored():
        for media_type in OTHER_TYPES:
            with subtests.test(media_type):
                await refuse(post, 415, "unsupported-media-type", b"{}", media_type)


NAMES_OF_JSON = [
    "application/json",
    "Application/JSON",
    "application/json;charset=UTF-8",
    'application/json; charset="utf-8"',
    "application/json ; charset=utf8",
    "application/json;",
    "application/json; ;; ",
    "application/json; version=1",
    "application/json; x",
    'application/json; profile="a;charset=utf-16"; Charset="Utf\\-8";',
    "application/json; charset = UTF_8",
]


async def test_every_name_of_json_in_utf_8_is_accepted(client: httpx2.AsyncClient) -> None:
    content = b'{"address":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"}'
    for media_type in NAMES_OF_JSON:
        response = await client.post("/users/nonce", content=content, headers={"content-type": media_type})
        assert response.status_code == 200, media_type


async def test_white_space_is_no_body_where_none_is_needed(post: Post) -> None:
    for content in (b"", b" ", b"\r\n", b"\t \n"):
        for media_type in ("application/json", None):
            response = await post("/users/api-key/rotate", content, media_type)
            assert response.status_code == 200, (content, media_type)
    assert (await post("/users/api-key/rotate", b"\x0c")).json()["code"] == "invalid-json"


async def test_a_content_coding_is_415(client: httpx2.AsyncClient, nothing_stored: Unchanged) -> None:
    async with nothing_stored():
        for coding in ["gzip", "deflate", "br", "zstd", "identity, gzip", "GZIP"]:
            response = await client.post("/users/nonce", content=b"{}", headers={"content-encoding": coding})
            assert response.status_code == 415, coding


async def test_a_body_that_is_not_coded_may_say_so(client: httpx2.AsyncClient) -> None:
    content = b'{"address":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"}'
    for coding in ["identity", "Identity", ""]:
        headers = {"content-type": "application/json", "content-encoding": coding}
        assert (await client.post("/users/nonce", content=content, headers=headers)).status_code == 200, coding


async def test_a_body_over_the_limit_is_413(post: Post, nothing_stored: Unchanged) -> None:
    async with nothing_stored():
        await refuse(post, 413, "body-too-large", b" " * (BODY_BYTES_MAX + 1))


async def test_a_body_at_the_limit_is_read(client: httpx2.AsyncClient) -> None:
    content = b'{"address":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"}'.ljust(BODY_BYTES_MAX)
    headers = {"content-type": "application/json"}
    assert (await client.post("/users/nonce", content=content, headers=headers)).status_code == 200


async def test_of_50_mb_without_a_length_no_more_than_the_limit_is_read(post: Post, nothing_stored: Unchanged) -> None:
    taken = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal taken
        for _ in range(800):
            taken += 64 * 1024
            yield b" " * 64 * 1024

    async with nothing_stored():
        assert (await post("/triggers", chunks())).status_code == 413
    assert taken <= BODY_BYTES_MAX + 64 * 1024


async def test_of_an_announced_50_mb_nothing_is_read(app: Any, token: str) -> None:
    async def unread() -> AsyncIterator[bytes]:
        yield b""
        raise AssertionError("the body was asked for")

    headers = [
        (b"content-type", b"application/json"), (b"content-length", b"52428800"), (b"x-auth-token", token.encode()),
    ]  # fmt: skip
    for path in PATHS:
        pieces = unread()
        await anext(pieces)
        reply = await app.respond(request_of("POST", path.encode(), b"", headers, Pieces(pieces)))
        assert reply.status == 413, path


async def test_two_members_of_one_name_are_400(
    post: Post, nothing_stored: Unchanged, subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for path, name in PATHS.items():
            for content in (
                f'{{"{name}":"a","{name}":"b"}}',
                f'{{"{name}":"a","{name}":"a"}}',
                f'{{"{name}":"a","\\u00{ord(name[0]):02x}{name[1:]}":"b"}}',
                '{"unknown":{"x":1,"x":1}}',
            ):
                with subtests.test(path, content=content):
                    response = await post(path, content.encode())
                    assert (response.status_code, response.json()["code"]) == (400, "invalid-json")
                    assert "two members named" in response.json()["detail"]
