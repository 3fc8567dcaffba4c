"""The pages without a browser: links, hostile text, empty registries, refusals, and a registry under a path."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from urllib.parse import parse_qsl, urldefrag, urljoin, urlsplit

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from answers import ok
from builders import Bundle, TriggerDraft, Wallet, deploy, event
from console_world import HOSTILE, World
from muniment.protocol.evm.event_signature import event_topic
from muniment.protocol.ipfs.cid import DAG_PB, Cid, cid_v1
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.running.settings import Settings
from page_site import BROWSER, Outline
from without_server import InProcess, Under

HIDDEN = "U+202E"


# Links are the same on both engines: each walk takes a second.
@pytest.mark.parametrize(
    ("database_url", "prefix"), [("postgres", ""), ("sqlite", "/registry")], indirect=["database_url"]
)
async def test_every_link_of_every_page_leads_somewhere(app: Application, world: World, prefix: str) -> None:
    transport = InProcess(Under(app, prefix))
    start, seen = f"http://test{prefix}/", set[str]()
    async with httpx2.AsyncClient(transport=transport, headers=BROWSER) as client:
        waiting = [start]
        while waiting:
            url = waiting.pop()
            answer = await client.get(url)
            assert answer.status_code in {200, 303}, (url, answer.text[:300])
            found = [answer.headers["location"]] if answer.status_code == 303 else []
            if answer.headers.get("content-type", "").startswith("text/html"):
                found += Outline(answer.text).links
            for link in found:
                target = urldefrag(urljoin(url, link)).url
                is_ours = urlsplit(target).netloc == "test" and "/errors/" not in target
                if is_ours and target not in seen:
                    assert urlsplit(target).path.startswith(f"{prefix}/"), (url, link)
                    seen.add(target)
                    waiting.append(target)
    paths = {urlsplit(each).path.removeprefix(prefix) for each in seen}
    assert {"/console", "/console/functions", "/console/triggers/new", "/console/service", "/docs"} <= paths
    assert {f"/console/triggers/{each['sig']}" for each in world.triggers} <= paths
    assert len([each for each in paths if each.startswith("/console/intents/")]) > 20


@pytest.mark.one_engine
async def test_the_page_of_a_trigger_shows_its_fee_limit_in_dollars(reader: httpx2.AsyncClient) -> None:
    limited = TriggerDraft(await deploy(reader), fee_limit="50000000000000000").signed()
    ok(await reader.post("/triggers", json=limited))
    page = await reader.get(f"/console/triggers/{limited['sig']}")
    assert "0.05 US dollars (50000000000000000) for each run" in page.text
    assert "Signed to end" not in page.text


@pytest.mark.one_engine
async def test_the_page_of_a_trigger_begins_with_its_function_and_schedule(
    reader: httpx2.AsyncClient, world: World
) -> None:
    page = (await reader.get(f"/console/triggers/{world.triggers[2]['sig']}")).text
    assert "<h1><bdi>Threshold</bdi> <small>on day 1 of each month at 09:30</small></h1>" in page
    assert "“<bdi>Keep the hot wallet above 1 ETH</bdi>”" in page
    assert "not signed" in page
    parts = ('id="deactivate"', "not signed", 'class="badges"', "<h2>Inputs", "<h2>Runs", "<h2>Intents", "Typed data")
    places = [page.index(each) for each in parts]
    assert places == sorted(places)
    assert re.search(
        r'data-words="Threshold, on day 1 of each month at 09:30; its next run, on \d+ [A-Z][^"]+ UTC, does not', page
    )
    ended = (await reader.get(f"/console/triggers/{world.triggers[1]['sig']}")).text
    assert 'id="deactivate"' not in ended


@pytest.mark.one_engine
async def test_a_function_to_sign_a_trigger_for_is_chosen_without_a_script(
    reader: httpx2.AsyncClient, world: World
) -> None:
    threshold, sweep = (world.cids[name] for name in ("Threshold", "Sweep rewards"))
    begun = (await reader.get("/console/triggers/new?version=9")).text
    assert f'href="?functionCid={threshold}&amp;version=9"' in begun
    most_used = begun[begun.index("Used most of late") : begun.index("Newest")]
    assert 0 < most_used.index(sweep) < most_used.index(threshold)
    assert ".js" not in begun.replace("frame.js", "").replace("dom.js", "")
    found = (await reader.get("/console/triggers/new?name=thRES&version=9")).text
    assert threshold in found
    assert sweep not in found
    assert '<input type="hidden" name="version" value="9">' in found
    for chosen in (f"name={threshold}", f"functionCid={threshold}"):
        form = (await reader.get(f"/console/triggers/new?{chosen}")).text
        assert f'data-cid="{threshold}" data-name="Threshold" data-version="0.3.1"' in form
        assert "muniment triggers sign" in " ".join(Outline(form).text.split())
        assert '<option value="8453">Base</option>' in form
        assert 'data-chain="8453" data-decimals="6">USDC</option>' in form
    unknown = str(cid_v1(DAG_PB, b"\1" * 32))
    for typed, words in ((f"functionCid={unknown}", unknown), ("functionCid=Qm", "CID"), ("name=x", "characters")):
        refused = (await reader.get(f"/console/triggers/new?{typed}")).text
        assert words in refused
        assert 'id="wizard"' not in refused
    assert (await reader.get(f"/console/triggers/new?functionCid={unknown}")).text.count('aria-invalid="true"') == 1


@pytest.mark.one_engine
async def test_the_page_of_a_trigger_names_a_well_known_event_and_an_address(reader: httpx2.AsyncClient) -> None:
    word = "0x" + "0" * 24 + Wallet(98).address[2:].lower()
    config = event(topics=[[event_topic("Transfer(address,address,uint256)")], [], [word]])
    waiting = TriggerDraft(await deploy(reader), config=config).signed()
    ok(await reader.post("/triggers", json=waiting))
    page = await reader.get(f"/console/triggers/{waiting['sig']}")
    assert "the event Transfer(address,address,uint256)" in page.text
    assert f"the address {Wallet(98).address}" in page.text


@pytest.mark.one_engine
async def test_the_page_of_a_deactivated_trigger_does_not_say_when_it_ends(
    reader: httpx2.AsyncClient, world: World
) -> None:
    page = await reader.get(f"/console/triggers/{world.triggers[1]['sig']}")
    assert "Signed to end" in page.text


@pytest.mark.one_engine
async def test_the_text_of_a_stranger_is_text_on_every_page(reader: httpx2.AsyncClient, world: World) -> None:
    places = [
        "console", "console/triggers", f"console/triggers/{world.triggers[-1]['sig']}", "console/functions",
        f"console/functions/{world.cids['Hostile']}", f"console/addresses/{Wallet(64).address}",
        f"console/intents/{world.intents['failed'][0]}", f"console/runs/{world.runs['hostile']}", "console/runs",
        "console/find?q=%3Cscript%3E%E2%80%AE", f"console/account?address={Wallet(62).address}",
        "console/triggers?signer=%3Cscript%3E%E2%80%AE", "console/%3Cscript%3E",
    ]  # fmt: skip
    plain = Outline((await reader.get("/console/deploy")).text)
    for place in places:
        outline = Outline((await reader.get(f"/{place}")).text)
        assert outline.tags.count("script") <= plain.tags.count("script") + 2, place
        assert not {"img", "iframe", "object", "embed", "base", "meta http-equiv"} & set(outline.tags), place
        assert outline.handlers == [], place
        assert not any(character in outline.text for character in "\u202e\u200b\x1b"), place
    shown = Outline((await reader.get(f"/{places[2]}")).text).text
    assert HOSTILE.partition("\u202e")[0] in shown
    assert HIDDEN in shown


NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=60)


@pytest.mark.one_engine
@hypothesis_settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES, number=st.integers(1_000, 9_000_000))
async def test_any_name_of_a_function_stays_a_text(reader: httpx2.AsyncClient, name: str, number: int) -> None:
    cid = await deploy(reader, Bundle(name, "1.0.0", name), Wallet(number))
    outline = Outline((await reader.get(f"/console/functions/{cid}")).text)
    assert outline.handlers == []
    assert outline.tags.count("bdi") >= 2


@pytest.mark.one_engine
async def test_an_empty_registry_says_what_to_do(reader: httpx2.AsyncClient) -> None:
    for path, words in {
        "console": "None arrived", "console/functions": "Deploy the first one",
        "console/triggers": "Sign the first one",
        "console/intents": "Sign a trigger, and start a relayer:muniment relayer --config relayer.toml",
        "console/intents?status=failed": "Nothing matches. Show all", "console/triggers?active=true": "Show all",
        "console/runs": "No relayer has recorded a run yet. Start one:muniment relayer --config relayer.toml",
        "console/runs?result=missed": "Nothing matches. Show all", "console/functions?creator=": "Nothing matches",
        f"console/addresses/{Wallet(1).address}": "It has signed no trigger. Sign one",
        f"console/account?address={Wallet(1).address}": "Nothing runs in the name of this address. Sign a trigger",
        "console/triggers/new": "No function is deployed yet. Deploy the first one",
    }.items():  # fmt: skip
        answer = await reader.get(f"/{path}")
        assert answer.status_code == 200
        assert words in Outline(answer.text).text, path


REFUSED = [
    ("/console/triggers/0x12", 400, "invalid-signature"), ("/console/intents/0x12", 400, "invalid-hex"),
    (f"/console/triggers/0x{'11' * 64}1b", 404, "trigger-not-found"), ("/console/nothing", 404, "unknown-path"),
    (f"/console/intents/0x{'11' * 32}", 404, "intent-not-found"),
    ("/console/runs/0x12", 400, "invalid-hex"), (f"/console/runs/0x{'11' * 32}", 404, "execution-not-found"),
    ("/console/addresses/0x1", 400, "invalid-address"),
    ("/console/functions/Qm", 400, "invalid-cid"), ("/console/triggers?cursor=x", 400, "invalid-parameter"),
    ("/console/assets/x/frame.js", 404, "unknown-path"), ("/console/functions/new", 404, "unknown-path"),
    ("/console/runs/new", 404, "unknown-path"), ("/console/intents/latest", 404, "unknown-path"),
    ("/console/addresses/me", 404, "unknown-path"), ("/console/triggers/not-yet", 404, "unknown-path"),
    ("/console/new", 404, "unknown-path"), ("/console/functions/new/", 404, "unknown-path"),
]  # fmt: skip


@pytest.mark.one_engine
async def test_a_refusal_is_a_page_for_a_browser_and_a_document_for_others(
    reader: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path, status, code in REFUSED:
        with subtests.test(path):
            page = await reader.get(path)
            assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
            assert code in Outline(page.text).text
            assert "script-src 'self'" in page.headers["content-security-policy"]
            assert page.headers.get_list("cache-control") == ["no-store"]
            assert 'id="wallet"' in page.text
            assert page.headers["x-request-id"] in page.text
            document = await reader.get(path, headers={"accept": "application/json"})
            assert (document.status_code, document.json()["code"]) == (status, code)
            refused = await reader.post(path.partition("?")[0], headers=BROWSER)
            assert refused.status_code in {404, 405}


# Addresses with a wrong filter, its name, and a part of what the page says about it.
WRONG = [
    ("/console/runs?result=x", "result", "Choose one"), ("/console/intents?op=9", "op", "Choose one"),
    ("/console/intents?user=0x12&status=failed", "user", "address"),
    ("/console/triggers?signer=%3Cb%3E", "signer", "address"),
    ("/console/functions?creator=1", "creator", "address"), ("/console/triggers?functionCid=Qm", "functionCid", "CID"),
    ("/console/intents?createdAfter=soon", "createdAfter", "a date and a time"),
]  # fmt: skip


@pytest.mark.one_engine
@pytest.mark.parametrize(("path", "name", "words"), WRONG)
async def test_a_wrong_filter_keeps_the_form_and_is_marked(
    reader: httpx2.AsyncClient, path: str, name: str, words: str
) -> None:
    answer = await reader.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "text/html; charset=utf-8")
    marked = re.findall(r'name="(\w+)"[^>]*aria-invalid="true" aria-describedby="fault-(\w+)"', answer.text)
    assert marked == [(name, name)]
    fault = re.findall(rf'<small class="bad" id="fault-{name}">(.*?)</small>', answer.text)
    assert len(fault) == 1
    assert words in fault[0]
    value = dict(parse_qsl(path.partition("?")[2]))[name]
    assert name in {"result", "op"} or f'value="{escape(value)}"' in answer.text  # what was typed can be mended
    assert "Nothing is listed" in answer.text
    assert '<option value="failed" selected>' in answer.text or "status" not in path
    document = await reader.get(path, headers={"accept": "application/json"})
    assert (document.status_code, document.json()["errors"][0]["parameter"]) == (400, name)


@pytest.mark.one_engine
async def test_empty_fields_of_a_form_are_left_out(reader: httpx2.AsyncClient, world: World) -> None:
    all_of_them = await reader.get("/console/triggers?active=&signer=&functionCid=")
    assert all(each["sig"][:8] in all_of_them.text for each in world.triggers)
    active = await reader.get(f"/console/triggers?active=true&signer={world.triggers[0]['signer']}")
    assert world.triggers[0]["sig"][:8] in active.text
    assert world.triggers[1]["sig"][:8] not in active.text


async def test_older_rows_are_on_the_next_page(reader: httpx2.AsyncClient, world: World) -> None:
    first = await reader.get("/console/intents")
    older = next(link for link in Outline(first.text).links if "cursor=" in link)
    second = await reader.get(urljoin("/console/intents", older))
    rows = [{link for link in Outline(page.text).links if "console/intents/0x" in link} for page in (first, second)]
    assert (len(rows[0]), rows[0] & rows[1]) == (25, set())
    assert rows[1]
    assert "Newest" in second.text
    del world


async def test_a_list_has_a_number_and_two_orders(reader: httpx2.AsyncClient, world: World) -> None:
    async def read(query: str) -> tuple[list[str], list[str], str]:
        outline = Outline((await reader.get(f"/console/intents?{query}")).text)
        rows = list(dict.fromkeys(each for each in outline.links if "console/intents/0x" in each))
        return rows, [each for each in outline.links if each.startswith("?")], outline.text

    newest, links, text = await read("op=&status=succeeded")
    assert sorted(links) == ["?", "?op=&status=succeeded&sort=1"]
    assert f"{len(newest)} intents · Oldest first" in text
    oldest, links, text = await read("op=&status=succeeded&sort=1")
    assert oldest == newest[::-1]
    assert "?op=&status=succeeded" in links
    assert "Newest first" in text
    first, links, text = await read("sort=1")
    assert "The oldest 25 · Newest first" in text
    page = (await reader.get("/console/intents?sort=1")).text
    assert '<input type="hidden" name="sort" value="1">' in page
    assert 'id="newer"' not in page  # newer rows belong to the end
    (following,) = (each for each in links if "cursor=" in each)
    second, _, text = await read(following[1:])
    assert not set(first) & set(second)
    assert f"{len(second)} more · " in text
    assert ("Newer" in page, "Older" in page, "Oldest" in text) == (True, False, True)
    del world


async def test_what_is_found_and_how(reader: httpx2.AsyncClient, world: World) -> None:
    sig, intent = world.triggers[0]["sig"], world.intents["failed"][0]
    record = (await reader.get(f"/intents/{intent}", headers={"accept": "application/json"})).json()
    cid = world.cids["Refill"]
    for given_text, path in {
        sig: f"triggers/{sig}", sig[2:].upper(): f"triggers/{sig}", intent: f"intents/{intent}",
        cid: f"functions/{cid}", str(cid_v1(DAG_PB, Cid.parse(cid).digest)): "functions/bafy",
        record["transactionHash"]: "intents/0x", Wallet(61).address.lower(): f"addresses/{Wallet(61).address}",
        f"https://x.example/functions/{cid}/manifest?a=b": f"functions/{cid}", f" {intent}\n": f"intents/{intent}",
    }.items():  # fmt: skip
        answer = await reader.get("/console/find", params={"q": given_text})
        assert answer.status_code == 303, given_text
        assert urljoin("/console/find", answer.headers["location"]).startswith(f"/console/{path}"), given_text
    for proposal in record["proposals"]:
        answer = await reader.get("/console/find", params={"q": proposal["hash"]})
        assert answer.status_code == 303
    for unknown, words in {
        "0x" + "ab" * 32: "a hash",
        "0x" + "11" * 64 + "1b": "a signature",
        "hello": "no signature",
    }.items():
        answer = await reader.get("/console/find", params={"q": unknown})
        assert answer.status_code == 200
        assert words in answer.text


@pytest.mark.one_engine
async def test_the_service_page_tells_no_secret(reader: httpx2.AsyncClient, context: Context) -> None:
    page = (await reader.get("/console/service")).text
    assert "0xd0515f681373c2feae6301dd219f013bf536ad6a34fd30023074381fa8858d04" in page  # the domain, as EIP-712 has it
    for secret in context.secrets():
        assert secret.hex() not in page
    assert str(context.settings.data_dir) not in page
    assert "postgres" not in page


@pytest.mark.one_engine
async def test_files_are_kept_for_ever_under_their_hash(reader: httpx2.AsyncClient) -> None:
    links = [link for link in Outline((await reader.get("/console/triggers/new")).text).links if "/assets/" in link]
    assert len(links) <= 14 * 2
    for link in links:
        whole = await reader.get(urljoin("/console/triggers/new", link), headers={"accept-encoding": "identity"})
        small = await reader.get(urljoin("/console/triggers/new", link), headers={"accept-encoding": "gzip"})
        refusing = await reader.get(urljoin("/console/triggers/new", link), headers={"accept-encoding": "br, gzip;q=0"})
        assert "content-encoding" not in refusing.headers
        assert whole.content == small.content == refusing.content
        assert int(small.headers["content-length"]) < len(whole.content)
        assert "immutable" in whole.headers["cache-control"]
        assert whole.headers["content-type"].split(";")[0] in {"text/javascript", "text/css"}


@pytest.mark.one_engine
async def test_search_engines_are_asked_to_stay_away(reader: httpx2.AsyncClient) -> None:
    answer = await reader.get("/robots.txt")
    assert (answer.headers["content-type"], "Disallow: /console" in answer.text) == ("text/plain; charset=utf-8", True)


class TestConsoleOff:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, console=False)

    @pytest.mark.one_engine
    async def test_there_is_no_page_and_no_link_to_one(self, reader: httpx2.AsyncClient) -> None:
        for path in ("/console", "/console/triggers", "/console/assets/x/frame.js"):
            answer = await reader.get(path)
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown-path")
        assert (await reader.get("/")).headers["location"] == "docs"
        assert "console" not in (await reader.get("/", headers={"accept": "application/json"})).json()
        for path in ("/docs", "/errors/invalid-address"):
            assert not [link for link in Outline((await reader.get(path)).text).links if "console" in link]
