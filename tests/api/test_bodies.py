"""The bodies that every operation with a JSON body refuses, and those that it accepts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest

from builders import Wallet, log_in
from conformance import operation_at

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
def post(client: httpx2.AsyncClient, token: str, nothing_stored: Unchanged) -> Post:
    """Post content that is refused: nothing may be stored."""

    async def send(path: str, content: Content, media_type: str | None = "application/json") -> httpx2.Response:
        headers = {"x-auth-token": token} | ({"content-type": media_type} if media_type else {})
        async with nothing_stored():
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


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param(b"[]", "invalid-body", id="array"),
        pytest.param(b'"x"', "invalid-body", id="string"),
        pytest.param(b"5", "invalid-body", id="number"),
        pytest.param(b"true", "invalid-body", id="boolean"),
        pytest.param(b" ", "invalid-json", id="space"),
        pytest.param(b'{"a":', "invalid-json", id="truncated"),
        pytest.param(b"{", "invalid-json", id="truncated at once"),
        pytest.param(b"{} x", "invalid-json", id="trailing garbage"),
        pytest.param(b"{}{}", "invalid-json", id="two texts"),
        pytest.param(b"{},", "invalid-json", id="trailing comma"),
        pytest.param(b"{'a': 1}", "invalid-json", id="single quotes"),
        pytest.param(b"\xef\xbb\xbf{}", "invalid-json", id="byte order mark"),
        pytest.param('{"a":1}'.encode("utf-16"), "invalid-json", id="UTF-16"),
        pytest.param(b'{"a":"\xff"}', "invalid-json", id="not UTF-8"),
        pytest.param(b'{"a":"\\ud800"}', "invalid-json", id="half a surrogate pair"),
        pytest.param(b'{"a":NaN}', "invalid-json", id="NaN"),
        pytest.param(b'{"a":1e999}', "invalid-json", id="beyond a double"),
        pytest.param(b'{"a":' + b"1" * 5000 + b"}", "invalid-json", id="5,000 digits"),
        pytest.param(b'{"a":' + b"[" * 65 + b"]" * 65 + b"}", "invalid-json", id="66 levels"),
        pytest.param(b"[" * 100_000, "invalid-json", id="100,000 brackets"),
        pytest.param(b"\0", "invalid-json", id="NUL"),
        pytest.param(b"<html></html>", "invalid-json", id="HTML"),
    ],
)
async def test_a_body_that_is_not_a_json_object_is_400(post: Post, content: bytes, code: str) -> None:
    await refuse(post, 400, code, content)


@pytest.mark.parametrize("path", [path for path in PATHS if path != "/users/api-key/rotate"])
async def test_a_missing_body_is_400(post: Post, path: str) -> None:
    for content, media_type in ((b"", "application/json"), (b"", None), (b"null", "application/json")):
        response = await post(path, content, media_type)
        assert response.status_code == 400
        assert response.json()["code"] == "invalid-body"


@pytest.mark.parametrize(
    "media_type",
    [
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
    ],
)
async def test_another_media_type_is_415(post: Post, media_type: str | None) -> None:
    await refuse(post, 415, "unsupported-media-type", b"{}", media_type)


@pytest.mark.parametrize(
    "media_type",
    [
        "application/json",
        "Application/JSON",
        "application/json;charset=UTF-8",
        'application/json; charset="utf-8"',
        "application/json ; charset=utf8",
    ],
)
async def test_every_name_of_json_in_utf_8_is_accepted(client: httpx2.AsyncClient, media_type: str) -> None:
    content = b'{"address":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"}'
    response = await client.post("/users/nonce", content=content, headers={"content-type": media_type})
    assert response.status_code == 200


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "identity, gzip", "GZIP"])
async def test_a_content_coding_is_415(client: httpx2.AsyncClient, nothing_stored: Unchanged, coding: str) -> None:
    async with nothing_stored():
        response = await client.post("/users/nonce", content=b"{}", headers={"content-encoding": coding})
    assert response.status_code == 415


@pytest.mark.parametrize("coding", ["identity", "Identity", ""])
async def test_a_body_that_is_not_coded_may_say_so(client: httpx2.AsyncClient, coding: str) -> None:
    content = b'{"address":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"}'
    headers = {"content-type": "application/json", "content-encoding": coding}
    assert (await client.post("/users/nonce", content=content, headers=headers)).status_code == 200


async def test_a_body_over_the_limit_is_413(post: Post) -> None:
    await refuse(post, 413, "body-too-large", b" " * (BODY_BYTES_MAX + 1))


async def test_a_body_at_the_limit_is_read(client: httpx2.AsyncClient) -> None:
    content = b'{"address":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"}'.ljust(BODY_BYTES_MAX)
    headers = {"content-type": "application/json"}
    assert (await client.post("/users/nonce", content=content, headers=headers)).status_code == 200


async def test_of_50_mb_without_a_length_no_more_than_the_limit_is_read(post: Post) -> None:
    taken = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal taken
        for _ in range(800):
            taken += 64 * 1024
            yield b" " * 64 * 1024

    assert (await post("/triggers", chunks())).status_code == 413
    assert taken <= BODY_BYTES_MAX + 64 * 1024


@pytest.mark.parametrize("path", PATHS)
async def test_of_an_announced_50_mb_nothing_is_read(app: Any, path: str, token: str) -> None:
    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was asked for")

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [
        (b"content-type", b"application/json"), (b"content-length", b"52428800"), (b"x-auth-token", token.encode()),
    ]  # fmt: skip
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": headers,
    }  # fmt: skip
    await app(scope, receive, send)
    assert sent[0]["status"] == 413


@pytest.mark.parametrize("path", PATHS)
async def test_two_members_of_one_name_are_400(post: Post, path: str) -> None:
    name = PATHS[path]
    for content in (
        f'{{"{name}":"a","{name}":"b"}}',
        f'{{"{name}":"a","{name}":"a"}}',
        f'{{"{name}":"a","\\u00{ord(name[0]):02x}{name[1:]}":"b"}}',
        '{"unknown":{"x":1,"x":1}}',
    ):
        response = await post(path, content.encode())
        assert response.status_code == 400
        assert response.json()["code"] == "invalid-json"
        assert "two members named" in response.json()["detail"]
