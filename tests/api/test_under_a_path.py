"""A proxy serves the registry under a path of its own: every reference in an answer leads somewhere all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from answers import ok
from builders import Bundle, TriggerDraft, deploy, register
from limitless import unlimited_settings
from muniment.service.app.application import Application
from muniment.service.running.settings import Settings
from without_server import InProcess, Under

pytestmark = pytest.mark.one_engine

HOME = "http://test/registry"
PUBLIC = "https://registry.example.org/at"


@pytest.fixture
def settings(tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    url: str = getattr(request, "param", "")
    return unlimited_settings(data_dir=tmp_path / "data", public_url=url, log_level="warning")


@pytest.fixture
async def reader(app: Application) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=InProcess(Under(app, "/registry")), base_url=HOME) as client:
        yield client


@pytest.mark.parametrize("path", ["/triggers", "/functions", "//functions", "/events"])
async def test_links_lead_through_a_listing(reader: httpx2.AsyncClient, path: str) -> None:
    cids = [await deploy(reader, Bundle(name)) for name in ("One", "Two", "Three")]
    for cid in cids:
        await register(reader, TriggerDraft(cid))
    newest = ok(await reader.get(f"{HOME}{path}?limit=1"))
    page, rows = ok(await reader.get(f"{HOME}{path}?sort=1&limit=1&x=%2F")), list[str]()
    while page.json():
        rows += [each.get("sig") or each.get("CID") or each["id"] for each in page.json()]
        page = ok(await reader.get(page.url.join(page.links["next"]["url"])))
        assert "x=%2F" in str(page.url)
    assert path == "/events" or len(rows) == len(set(rows)) == 3
    if "prev" in newest.links:
        later = ok(await reader.get(newest.url.join(newest.links["prev"]["url"])))
        assert later.json()[-1:] in ([], newest.json())


REFUSED = [
    ("GET", "/nothing", "unknown-path"), ("GET", "/", "method-not-allowed"), ("GET", "/a/b/c/d", "unknown-path"),
    ("GET", "/triggers/0x12", "invalid-signature"), ("GET", "/triggers?limit=0", "invalid-parameter"),
    ("GET", "//functions?limit=0", "invalid-parameter"), ("GET", "///triggers/0x12", "invalid-signature"),
    ("GET", "//metrics", "unknown-path"), ("GET", "/functions/", "unknown-path"), ("GET", "/ipfs/x/y", "invalid-cid"),
    ("PUT", "/triggers/deactivate/sign-params", "method-not-allowed"), ("POST", "/users/nonce", "invalid-body"),
]  # fmt: skip


async def test_the_type_of_a_problem_leads_to_its_page(reader: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for method, path, code in REFUSED:
        with subtests.test(path):
            answer = await reader.request("DELETE" if path == "/" else method, HOME + path)
            assert answer.json()["code"] == code
            assert str(answer.url.join(answer.json()["type"])) == f"{HOME}/errors/{code}"
            assert code in ok(await reader.get(answer.url.join(answer.json()["type"]))).text


@pytest.mark.parametrize("settings", [PUBLIC, f"{PUBLIC}/"], indirect=True)
async def test_the_type_of_a_problem_is_absolute_with_a_public_url(reader: httpx2.AsyncClient) -> None:
    for path in ("/nothing", "/triggers/0x12", "//functions?limit=0"):
        problem = (await reader.get(HOME + path)).json()
        assert problem["type"] == f"{PUBLIC}/errors/{problem['code']}"


async def test_other_references_are_relative(reader: httpx2.AsyncClient) -> None:
    block = ok(await reader.get("/ipfs/bafkqaaa", headers={"accept": "application/vnd.ipld.raw"}))
    located = block.url.join(block.headers["content-location"])
    assert str(located) == f"{HOME}/ipfs/bafkqaaa?format=raw"
    assert ok(await reader.get(located)).content == block.content
    document = ok(await reader.get("/openapi.json"))
    (server,) = document.json()["servers"]
    assert str(document.url.join(server["url"])) == f"{HOME}/"
    home = await reader.get(f"{HOME}/", headers={"accept": "text/html"})
    assert str(home.url.join(home.headers["location"])) == f"{HOME}/console"


UNDOUBLED = [
    "//metrics", "//healthz", "//readyz", "//console", "//console/functions", "//docs", "//openapi.json", "//log",
    "//webhooks", "//events", "//", "///", "//nothing", "//console/assets/x/frame.js",
    "/functions//x", "/triggers//preview", "/console//functions", "//functions//", "//triggers//preview",
    "/log//tile/0/000", "/log/x//tile/0/000", "/log/x/tile//000", "/log/1/tile/0//000", "/users//nonce", "/ipfs//x",
]  # fmt: skip


async def test_only_paths_of_the_interface_may_begin_with_doubled_slashes(
    app: Application, subtests: pytest.Subtests
) -> None:
    async with httpx2.AsyncClient(transport=InProcess(app)) as client:
        for path in ("//functions", "///triggers", "//intents", "//functions?limit=1", "//triggers?limit=1"):
            assert ok(await client.get(f"http://test{path}")).json() == []
        nonce = await client.post("http://test//users/nonce", json={"address": "0x" + "11" * 20})
        assert nonce.status_code == 200
        for path in UNDOUBLED:
            with subtests.test(path):
                answer = await client.get(f"http://test{path}")
                assert answer.status_code == 404
