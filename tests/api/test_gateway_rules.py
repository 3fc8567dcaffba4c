"""The rules of the gateway specifications, a row for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import httpx2
import pytest
from gateway_world import V0, World, sample

from muniment.protocol.ipfs.cid import DAG_PB, BundleCid, cid_v1

pytestmark = pytest.mark.one_engine

# The sample bundle `own-hello` as a CIDv0, and what it is made of.
ROOT = "QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4"
MANIFEST = "QmVqVJZErnPj8vJNcj8VBPtuHS4oRUJveNtPw6qmyMACs6"
WASM = "QmcTp6e68SRvPJDT39KrzdD1CGdU7MSch3fwHwxw8QpQcd"
ABSENT = "QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ"

RAW = "application/vnd.ipld.raw"
CAR = "application/vnd.ipld.car"
CAR_DONE = f"{CAR}; version=1; order=dfs; dups=n"
CAR_DUPS = f"{CAR}; version=1; order=dfs; dups=y"
ONLY_IF_CACHED = {"cache-control": "only-if-cached"}
FOR_EVER = "public, max-age=29030400, immutable"
R = f"/ipfs/{ROOT}"
RAW_BYTES = 116


@dataclass
class Row:
    """A rule, a request, and what its answer has."""

    rule: str
    path: str
    status: int = 200
    sends: Mapping[str, str] = field(default_factory=dict)
    has: Mapping[str, str | None] = field(default_factory=dict)
    method: str = "GET"
    code: str = ""


FORMS = [
    Row("raw by format", f"{R}?format=raw", has={"content-type": RAW}),
    Row("raw by Accept", R, sends={"accept": RAW}, has={"content-type": RAW}),
    Row("car by format", f"{R}?format=car", has={"content-type": CAR_DONE}),
    Row("car by Accept", R, sends={"accept": CAR}, has={"content-type": CAR_DONE}),
    Row("format wins over Accept", f"{R}?format=raw", sends={"accept": CAR}, has={"content-type": RAW}),
    Row("format wins over Accept of no form", f"{R}?format=raw", sends={"accept": "a/b"}, has={"content-type": RAW}),
    Row("quality decides", R, sends={"accept": f"{CAR};q=0.5, {RAW}"}, has={"content-type": RAW}),
    Row("quality zero is none", R, 406, {"accept": f"{RAW};q=0"}),
    Row("a name beats a wildcard", f"{R}/manifest.json", sends={"accept": f"*/*, {RAW}"}, has={"content-type": RAW}),
    Row("dups by Accept", R, sends={"accept": f"{CAR};order=dfs;dups=y"}, has={"content-type": CAR_DUPS}),
    Row("dups by query", f"{R}?format=car&car-dups=y", has={"content-type": CAR_DUPS}),
    Row("the query wins", f"{R}?car-dups=n", sends={"accept": f"{CAR};dups=y"}, has={"content-type": CAR_DONE}),
    Row("both give", f"{R}?format=car", sends={"accept": f"{CAR}; dups=y"}, has={"content-type": CAR_DUPS}),
    Row("unknown order will do", f"{R}?format=car&car-order=unk", has={"content-type": CAR_DONE}),
    Row("the query mends", f"{R}?car-version=1", sends={"accept": f"{CAR};version=2"}, has={"content-type": CAR_DONE}),
    Row("the next best", R, sends={"accept": f"{CAR};version=2, {RAW};q=0.1"}, has={"content-type": RAW}),
    Row("quotes in Accept", R, sends={"accept": f'a/b;c=",;", {CAR};dups="y"'}, has={"content-type": CAR_DUPS}),
    Row("neither is named", R, 406, code="not-acceptable"),
    Row("a wildcard names neither", R, 406, {"accept": "*/*"}, code="not-acceptable"),
    Row("unknown format", f"{R}?format=tar", 406, code="not-acceptable"),
    Row("unknown format of a file", f"{R}/manifest.json?format=tar", 406, code="not-acceptable"),
    Row("unknown type", f"{R}/manifest.json", 406, {"accept": "application/vnd.ipld.dag-json"}, code="not-acceptable"),
    Row("car version by Accept", R, 406, {"accept": f"{CAR};version=2"}, code="not-acceptable"),
    Row("car order by Accept", R, 406, {"accept": f"{CAR};order=bfs"}, code="not-acceptable"),
    Row("car version by query", f"{R}?format=car&car-version=2", 400, code="invalid-parameter"),
    Row("car order by query", f"{R}?format=car&car-order=bfs", 400, code="invalid-parameter"),
    Row("car dups by query", f"{R}?format=car&car-dups=yes", 400, code="invalid-parameter"),
    Row("dag-scope", f"{R}?format=car&dag-scope=some", 400, code="invalid-parameter"),
    Row("entity-bytes", f"{R}?format=car&entity-bytes=null:*", 400, code="invalid-parameter"),
    Row("given twice", f"{R}?format=car&format=raw", 400, code="invalid-parameter"),
]  # fmt: skip
HEADERS = [
    Row("raw type and length", f"{R}?format=raw", has={"content-type": RAW, "content-length": str(RAW_BYTES)}),
    Row("raw attachment", f"{R}?format=raw", has={"content-disposition": f'attachment; filename="{ROOT}.bin"'}),
    Row("raw nosniff", f"{R}?format=raw", has={"x-content-type-options": "nosniff"}),
    Row("raw etag", f"{R}?format=raw", has={"etag": f'"{ROOT}.raw"'}),
    Row("raw takes ranges", f"{R}?format=raw", has={"accept-ranges": "bytes"}),
    Row("car takes no ranges", f"{R}?format=car", has={"accept-ranges": "none"}, sends={"range": "bytes=0-3"}),
    Row("car attachment", f"{R}?format=car", has={"content-disposition": f'attachment; filename="{ROOT}.car"'}),
    Row("car nosniff", f"{R}?format=car", has={"x-content-type-options": "nosniff"}),
    Row("file name", f"{R}?format=raw&filename=a.bin", has={"content-disposition": 'attachment; filename="a.bin"'}),
    Row("file name in UTF-8", f"{R}?format=car&filename=%C3%A9%22.car", has={
        "content-disposition": "attachment; filename=\"__.car\"; filename*=UTF-8''%C3%A9%22.car"}),
    Row("file name of a file", f"{R}/manifest.json?filename=m", has={"content-disposition": 'inline; filename="m"'}),
    Row("file name with a line end", f"{R}?format=raw&filename=a%0D%0Ab", 400, code="invalid-parameter"),
    Row("file name that is a path", f"{R}?format=raw&filename=..%2Fa", 400, code="invalid-parameter"),
    Row("raw is immutable", f"{R}?format=raw", has={"cache-control": FOR_EVER, "vary": "Accept"}),
    Row("car is immutable", f"{R}?format=car", has={"cache-control": FOR_EVER, "vary": "Accept"}),
    Row("a file is immutable", f"{R}/manifest.json", has={"cache-control": FOR_EVER, "vary": "Accept"}),
    Row("path and roots", f"{R}?format=raw", has={"x-ipfs-path": R, "x-ipfs-roots": ROOT}),
    Row("a root for each segment", f"{R}/manifest.json", has={
        "x-ipfs-path": f"{R}/manifest.json", "x-ipfs-roots": f"{ROOT},{MANIFEST}"}),
    Row("location of raw", R, sends={"accept": RAW}, has={"content-location": "?format=raw"}),
    Row("location of car", f"{R}?dag-scope=block&car-dups=n", sends={"accept": f"{CAR};version=1;dups=y"}, has={
        "content-location": "?dag-scope=block&car-dups=n&format=car&car-version=1"}),
    Row("no location by format", f"{R}?format=raw", sends={"accept": RAW}, has={"content-location": None}),
    Row("CORS", f"{R}?format=raw", has={"access-control-allow-origin": "*"}),
]  # fmt: skip
CACHES = [
    Row("same etag", f"{R}?format=raw", 304, {"if-none-match": f'"{ROOT}.raw"'}, {
        "etag": f'"{ROOT}.raw"', "cache-control": FOR_EVER, "content-type": None}),
    Row("a list", f"{R}?format=raw", 304, {"if-none-match": f'"x", "{ROOT}.raw"'}),
    Row("a weak etag", f"{R}?format=raw", 304, {"if-none-match": f'W/"{ROOT}.raw"'}),
    Row("any", f"{R}?format=raw", 304, {"if-none-match": "*"}),
    Row("any car", f"{R}?format=car", 304, {"if-none-match": "*"}),
    Row("any file", f"{R}/function.wasm", 304, {"if-none-match": "*"}),
    Row("304 comes before the range", f"{R}?format=raw", 304, {"if-none-match": "*", "range": "bytes=999-"}),
    Row("another form's etag", f"{R}?format=car", 200, {"if-none-match": f'"{ROOT}.raw"'}),
    Row("absent, whatever the client has", f"/ipfs/{ABSENT}?format=raw", 404, {"if-none-match": "*"}),
    Row("only if cached, held", f"{R}?format=raw", 200, {"cache-control": "no-transform, Only-If-Cached"}),
    Row("only if cached, absent", f"/ipfs/{ABSENT}?format=raw", 412, ONLY_IF_CACHED, code="not-cached"),
    Row("only if cached, absent car", f"/ipfs/{ABSENT}?format=car", 412, ONLY_IF_CACHED, code="not-cached"),
    Row("only if cached, absent file", f"/ipfs/{ABSENT}/manifest.json", 412, ONLY_IF_CACHED, code="not-cached"),
]  # fmt: skip
ERRORS = [
    Row("malformed CID", "/ipfs/bafybeigarbage?format=raw", 400, code="invalid-cid"),
    Row("malformed CID before a name", "/ipfs/x/manifest.json", 400, code="invalid-cid"),
    Row("other codec", "/ipfs/bafyreib2rxk3rybk3aobmv5cjuql3bm2twh4jo5uxgf5kpqcsgz7soitae?format=raw", 400),
    Row("other identity CID", "/ipfs/bafkqaetimvwgy3y?format=raw", 400, code="invalid-cid"),
    Row("unknown root, raw", f"/ipfs/{ABSENT}?format=raw", 404, code="content-not-found"),
    Row("unknown root, car", f"/ipfs/{ABSENT}?format=car", 404, code="content-not-found"),
    Row("unknown root, file", f"/ipfs/{ABSENT}/manifest.json", 404, code="content-not-found"),
    Row("missing name", f"{R}/index.html", 404, code="content-not-found"),
    Row("missing name, raw", f"{R}/index.html?format=raw", 404, code="content-not-found"),
    Row("missing name, car", f"{R}/index.html?format=car", 404, code="content-not-found"),
    Row("a file has no names", f"/ipfs/{WASM}/manifest.json", 404, code="content-not-found"),
    Row("no directory listing", f"{R}/", 404),
    Row("%2f is no slash", f"/ipfs/{ROOT}%2fmanifest.json", 400, code="invalid-cid"),
    Row("%2f in a name", f"{R}/a%2fmanifest.json", 404, code="content-not-found"),
    Row("%00 in a name", f"{R}/manifest.json%00", 404, code="content-not-found"),
    Row("no writing", f"{R}?format=raw", 405, has={"allow": "GET, HEAD, OPTIONS"}, method="POST"),
]  # fmt: skip
PROBE = [
    Row("probe", "/ipfs/bafkqaaa?format=raw", has={"content-length": "0", "content-type": RAW}),
    Row("probe by HEAD", "/ipfs/bafkqaaa?format=raw", method="HEAD", has={"content-length": "0"}),
    Row("probe by Accept", "/ipfs/bafkqaaa", sends={"accept": RAW}, has={"etag": '"bafkqaaa.raw"'}),
    Row("probe for car", "/ipfs/bafkqaaa?format=car", has={"content-type": CAR_DONE}),
    Row("probe for a file", "/ipfs/bafkqaaa/manifest.json", 404),
]
ROWS = [*FORMS, *HEADERS, *CACHES, *ERRORS, *PROBE]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One for all rows: asking changes nothing."""
    world = World(tmp_path_factory.mktemp("blocks"))
    world.add("own-hello", V0)
    return world


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    async with world.client() as client:
        yield client


@pytest.mark.parametrize("row", ROWS, ids=[row.rule for row in ROWS])
async def test_the_gateway_keeps_the_rule(client: httpx2.AsyncClient, row: Row) -> None:
    reply = await client.request(row.method, row.path, headers=row.sends)
    assert reply.status_code == row.status, reply.text
    assert {name: reply.headers.get(name) for name in row.has} == row.has
    if row.status >= 400:
        assert row.code in {"", reply.json()["code"]}
        assert "immutable" not in reply.headers.get("cache-control", "")


@pytest.mark.parametrize("row", [row for row in ROWS if row.method == "GET"], ids=lambda row: row.rule)
async def test_head_has_the_status_and_the_headers_of_get(client: httpx2.AsyncClient, row: Row) -> None:
    sends = {"x-request-id": "same", **row.sends}
    got = await client.get(row.path, headers=sends)
    head = await client.head(row.path, headers=sends)
    assert head.status_code == got.status_code
    assert head.content == b""
    assert {**head.headers, "content-length": ""} == {**got.headers, "content-length": ""}
    assert head.headers.get("content-length") in {got.headers.get("content-length"), None}


@pytest.mark.parametrize("form", ["raw", "car"])
async def test_a_bundle_answers_to_either_version_of_its_cid(client: httpx2.AsyncClient, form: str) -> None:
    spelt = cid_v1(DAG_PB, BundleCid.parse(ROOT).digest)
    reply = await client.get(f"/ipfs/{spelt}?format={form}")
    assert reply.status_code == 200
    assert reply.headers["x-ipfs-roots"] == spelt
    assert spelt in reply.headers["etag"]


async def test_the_file_is_served_as_it_was_uploaded(client: httpx2.AsyncClient) -> None:
    for name, data in sample("own-hello").items():
        reply = await client.get(f"{R}/{name}")
        assert reply.content == data
