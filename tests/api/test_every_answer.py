"""What every answer has in common: problem documents, Allow, CORS, request ids, security headers, limits."""

from __future__ import annotations

import itertools
from collections import defaultdict

import httpx2
import pytest

from builders import Wallet, deploy
from muniment.service.app import OPERATIONS

pytestmark = pytest.mark.one_engine

METHODS: defaultdict[str, set[str]] = defaultdict(set)
for each in OPERATIONS:
    METHODS[each.path] |= {each.method, "OPTIONS"} | ({"HEAD"} if each.method == "GET" else set())


def filled(path: str) -> str:
    return path.replace("{", "").replace("}", "")


NO_PATHS = [
    "/nothing", "/functions/", "/functions/x/y", "/functions/x/manifest/", "/triggers/", "/users/", "/users",
    "/functions%2F", "/functions%2fx", "/functions%00", "/%00", "/Functions", "/functions;x",
    "/triggers//sign-params", "/functions\\", "/docs/", "/healthz/",
    "/ipfs/", "/%ff", "/%", "/..%2f..%2fetc%2fpasswd", "/index.html", "/.env",
]  # fmt: skip


async def test_another_path_is_not_found(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for path, method in itertools.product(NO_PATHS, ("GET", "POST", "DELETE", "OPTIONS")):
        with subtests.test(path, method=method):
            response = await client.request(method, httpx2.URL("http://test", raw_path=path.encode()))
            assert (response.status_code, response.json()["code"]) == (404, "unknown-path")
            assert response.headers["content-type"] == "application/json"


async def test_another_method_is_refused_with_all_that_are_allowed(
    client: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path, allowed in METHODS.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT"} - allowed:
            with subtests.test(path, method=method):
                response = await client.send(request_of(method, filled(path)))
                assert (response.status_code, response.json()["code"]) == (405, "method-not-allowed")
                assert set(response.headers["allow"].split(", ")) == allowed


async def test_a_method_that_no_operation_has_and_http_does_not_name_is_not_implemented(
    client: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    for method, path in itertools.product(
        ["get", "BREW", "PROPFIND", "QUERY"], ("/functions", "/nothing", "/triggers/0x12")
    ):
        with subtests.test(method, path=path):
            response = await client.send(request_of(method, path))
            assert (response.status_code, response.json()["code"]) == (501, "method-not-implemented")
            assert response.headers["connection"] == "close"
            assert "allow" not in response.headers


def request_of(method: str, path: str) -> httpx2.Request:
    request = httpx2.Request("GET", f"http://test{path}")
    request.method = method
    return request


MEDIA_TYPES = [
    (None, "application/json"), ("*/*", "application/json"), ("text/html", "application/json"),
    ("application/problem+json", "application/problem+json"),
    ("application/json, application/problem+json", "application/problem+json"),
    ("APPLICATION/PROBLEM+JSON; charset=utf-8", "application/problem+json"),
    ("application/json;q=0.9, application/problem+json;q=0.95", "application/problem+json"),
    ("application/problem+json;q=0.5, */*;q=0.1", "application/problem+json"),
    ("application/json;q=0, application/problem+json;q=0.1", "application/problem+json"),
    ("application/json, application/problem+json;q=0.5", "application/json"),
    ("application/problem+json;q=0.5, */*", "application/json"),
    ("application/problem+json;q=0", "application/json"),
    ("application/problem+json;q=0.000, */*;q=0.1", "application/json"),
    ('text/plain;note="application/problem+json"', "application/json"),
    (";", "application/json"),
]  # fmt: skip


async def test_a_problem_has_the_media_type_asked_for(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for accept, media_type in MEDIA_TYPES:
        with subtests.test(accept):
            response = await client.get("/nothing", headers={"accept": accept} if accept else {})
            assert response.headers["content-type"] == media_type
            assert response.json()["title"]


async def test_a_problem_names_a_page_that_explains_it(client: httpx2.AsyncClient) -> None:
    problem = (await client.get("/nothing")).json()
    page = await client.get(problem["type"])
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert problem["code"] in page.text


async def test_a_browser_of_any_origin_may_ask(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    headers = {
        "origin": "https://app.example", "access-control-request-method": "POST",
        "access-control-request-headers": "x-api-key,x-auth-token,content-type",
    }  # fmt: skip
    for path, allowed in METHODS.items():
        with subtests.test(path):
            response = await client.options(filled(path), headers=headers)
            assert (response.status_code, response.content) == (204, b"")
            assert response.headers["access-control-allow-origin"] == "*"
            assert response.headers["access-control-allow-headers"] == headers["access-control-request-headers"]
            assert set(response.headers["access-control-allow-methods"].split(", ")) == allowed
            assert "access-control-request-headers" in response.headers["vary"].lower()
            assert "access-control-allow-credentials" not in response.headers


EXPOSED = {
    "x-request-id", "link", "etag", "retry-after", "ratelimit", "ratelimit-policy", "x-partial", "x-unpriced",
    "content-range", "x-ipfs-path", "x-ipfs-roots", "x-caught-up", "idempotency-status",
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "status"), [("/functions", 200), ("/nothing", 404), ("/functions/x", 400), ("/users/api-key", 401)]
)
async def test_every_answer_can_be_read_by_pages_of_other_origins(
    client: httpx2.AsyncClient, path: str, status: int
) -> None:
    response = await client.get(path, headers={"origin": "https://app.example"})
    assert response.status_code == status
    assert response.headers["access-control-allow-origin"] == "*"
    assert set(response.headers["access-control-expose-headers"].split(", ")) == EXPOSED
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/docs", "/errors/invalid-cid"])
async def test_a_page_says_what_it_may_load(client: httpx2.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "://" not in response.headers["content-security-policy"]


async def test_a_request_id_is_answered(client: httpx2.AsyncClient) -> None:
    for given in ["abc-1", "4bf92f3577b34da6a3ce929d0e0e4736", "a" * 128, "A.b_c~d:e/f+g=h"]:
        response = await client.get("/nothing", headers={"x-request-id": given})
        assert response.headers["x-request-id"] == response.json()["requestId"] == given


async def test_another_request_id_is_replaced(client: httpx2.AsyncClient) -> None:
    for given in ["", " ", "a" * 129, "a b", "<script>", "a\tb", "é", 'a"b', "a,b"]:
        response = await client.get("/nothing", headers=[(b"x-request-id", given.encode("latin-1"))])
        made = response.headers["x-request-id"]
        assert made != given
        assert (len(made), int(made, 16) > 0) == (32, True), given


async def test_every_request_has_an_id_of_its_own(client: httpx2.AsyncClient) -> None:
    ids = {(await client.get("/healthz")).headers["x-request-id"] for _ in range(20)}
    assert len(ids) == 20


TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


TRACES = [
    (f"00-{TRACE_ID}-00f067aa0ba902b7-01", True), (f"cc-{TRACE_ID}-00f067aa0ba902b7-01-what-comes", True),
    (f"00-{'0' * 32}-00f067aa0ba902b7-01", False), (f"00-{TRACE_ID}-{'0' * 16}-01", False),
    (f"00-{TRACE_ID.upper()}-00f067aa0ba902b7-01", False), (TRACE_ID, False), ("", False),
    (f"ff-{TRACE_ID}-00f067aa0ba902b7-01", False), (f"00-{TRACE_ID}-00f067aa0ba902b7-01-x", False),
]  # fmt: skip


async def test_a_trace_is_continued(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for traceparent, heeded in TRACES:
        with subtests.test(traceparent):
            response = await client.get("/healthz", headers={"traceparent": traceparent})
            assert (response.headers["x-request-id"] == TRACE_ID) == heeded
            named = await client.get("/healthz", headers={"traceparent": traceparent, "x-request-id": "mine"})
            assert named.headers["x-request-id"] == "mine"


async def test_a_target_that_is_too_long_is_refused(client: httpx2.AsyncClient) -> None:
    for target in ("/functions?x=" + "x" * 32_768, "/functions/" + "x" * 32_768):
        response = await client.get(target)
        assert (response.status_code, response.json()["code"]) == (414, "uri-too-long")
    assert (await client.get("/functions?x=" + "x" * 30_000)).status_code == 200


@pytest.mark.parametrize("headers", [{"x-long": "x" * 33_000}, {f"x-{number}": "x" * 100 for number in range(400)}])
async def test_header_fields_that_are_too_large_are_refused(
    client: httpx2.AsyncClient, headers: dict[str, str]
) -> None:
    response = await client.get("/functions", headers=headers)
    assert (response.status_code, response.json()["code"]) == (431, "headers-too-large")
    assert (await client.get("/functions", headers={"x-long": "x" * 30_000})).status_code == 200


async def test_head_has_the_headers_of_get_and_no_body(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client, None, Wallet(2))
    for path in ("/functions", f"/functions/{cid}", f"/functions/{cid}/wasm", "/nothing", "/docs", "/openapi.json"):
        get, head = await client.get(path), await client.head(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        names = set(get.headers) - {"x-request-id"}
        assert {name: head.headers[name] for name in names} == {name: get.headers[name] for name in names}
