"""`verify --remote` reports a lie about each field that docs/reference/verified-fields.md lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from facades_world import CHAIN_ID, draft, new_intent, signer
from lies import in_place_of, lies

from builders import event, once
from followed_world import Site, changing, followed_registry
from middle import Answered, Behaviour, always, honest, remembering
from muniment.cli.main import main
from muniment.client import Registry
from muniment.client.offers import sign_proposal
from operator_client import FAR_DEADLINE

PAGE = (Path(__file__).parents[2] / "docs/reference/verified-fields.md").read_text("utf-8")
UNCOVERED = ("claim", "not read")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with followed_registry(tmp_path_factory.mktemp("fields")) as made:
        with Registry(made.url, signer=signer(7), operator_key=made.operator_key) as registry:
            (function,) = registry.functions.list()
            for config in (event(), once()):
                registry.triggers.create(draft(function.cid, config=config, input={"to": signer(7).address}))
            for generation in (1, 2):
                intent = registry.intents.put(new_intent(generation))
                registry.intents.propose(intent.hash, sign_proposal(
                    signer(72), intent, chain_id=CHAIN_ID, fees=["3", "4"], deadline=FAR_DEADLINE, data="0xbeef"
                ))  # fmt: skip
        yield made


def covered(record: str) -> list[str]:
    """The fields of a record that the page says are covered."""
    rows = re.findall(rf"^\| {record} \| (`[^|]*`) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert rows, record
    return [name for names, said in rows if not said.startswith(UNCOVERED) for name in re.findall(r"`([^`]+)`", names)]


def places(site: Site) -> dict[str, tuple[str, str, int]]:
    """For each record a path that answers it, the path in the record of that answer, and its index in a listing."""
    (cid,) = [each["CID"] for each in httpx2.get(f"{site.url}/functions").json()]
    return {
        "Trigger": ("/triggers", "", 1), "TypeMember": ("/triggers", "types.Trigger.*.", 1),
        "Types": ("/triggers", "types.", 1), "CronConfig": ("/triggers", "config.", 0),
        "EventConfig": ("/triggers", "config.", 2), "OnceConfig": ("/triggers", "config.", 3),
        "RecordedDeactivation": (f"/deactivations/{site.ending}", "", 0),
        "DomainShown": (f"/deactivations/{site.ending}", "domain.", 0), "Function": ("/functions", "", 0),
        "Function by itself": (f"/functions/{cid}", "", 0), "LogEpoch": ("/log", "epochs.*.", 0),
        "LogShown": ("/log", "", 0),
        "Intent": ("/intents", "", 0), "IntentEvent": ("/intents", "events.*.", 0),
        "MaxFee": ("/intents", "maxFees.*.", 0),
        "Proposal": ("/intents", "proposals.*.", 0), "OperationsIntent": ("/intents", "", 1),
        "Operation": ("/intents", "operations.*.", 1), "OperationsProposal": ("/intents", "proposals.*.", 1),
    }  # fmt: skip


RECORDS = [
    "Trigger", "TypeMember", "Types", "CronConfig", "EventConfig", "OnceConfig", "RecordedDeactivation", "DomainShown",
    "Function", "Function by itself", "LogEpoch", "LogShown", "Intent", "IntentEvent", "MaxFee", "Proposal",
    "OperationsIntent", "Operation", "OperationsProposal",
]  # fmt: skip
LISTING = {"/triggers": "?sort=1", "/functions": "?sort=1", "/intents": "?sort=1&generation=all"}


@pytest.mark.parametrize("record", RECORDS)
def test_a_lie_about_a_covered_field_is_reported(site: Site, record: str) -> None:
    path, inside, index = places(site)[record]
    answer = httpx2.get(f"{site.url}{path}{LISTING.get(path, '')}").json()
    truth = answer[index] if isinstance(answer, list) else answer
    told: dict[str, Any] = {}
    for name, lie in lies(truth):
        if name.startswith(inside):
            told.setdefault(name.removeprefix(inside).partition(" ")[0].partition(".")[0], lie)
    fields = covered(record.partition(" ")[0])
    known: dict[tuple[str, str, bytes], Answered] = {}
    assert fields
    assert {*fields} <= {*told}
    for field in fields:
        with site.middle.behaving(remembering(changing(path, in_place_of(index, told[field])), known)):
            done = CliRunner().invoke(main, ["verify", "--remote", site.middle.url])
        assert done.exit_code != 0, f"{record}.{field}: {done.output}"
        assert re.search("WRONG|FORGED|not verified", done.output), f"{record}.{field}: {done.output}"


def test_without_a_lie_there_is_no_report(site: Site) -> None:
    done = CliRunner().invoke(main, ["verify", "--remote", site.middle.url])
    assert (done.exit_code, "intents: none wrong" in done.output) == (0, True), done.output


RAW_CID = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"
STRANGER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
NO_TIME = "2026-13-45T99:99:99.999Z"


def function_lies(site: Site) -> dict[str, dict[str, Behaviour]]:
    """Lies about functions, by path, which are hard to compare with a log."""
    path = f"/functions/{httpx2.get(f'{site.url}/functions').json()[0]['CID']}"
    return {
        "it is withheld from the listing, and forged by itself": {
            "/functions": changing("/functions", lambda _: []),
            path: changing(path, lambda record: {**record, "name": "x"}),
        },
        "it has a CID that no function has": {
            "/functions": changing("/functions", lambda listed: _each(listed, CID=RAW_CID))
        },
        "its creator is another wallet, since no time": {
            each: changing(each, lambda answer: _each(answer, creator=STRANGER, createdAt=NO_TIME))
            for each in ("/functions", path)
        },
    }


def _each(answer: Any, **members: str) -> Any:
    return [{**each, **members} for each in answer] if isinstance(answer, list) else {**answer, **members}


def by_path(lies: dict[str, Behaviour]) -> Behaviour:
    return lambda asked, forward: lies.get(asked.target.partition("?")[0], honest)(asked, forward)


@pytest.mark.parametrize("number", range(3))
def test_a_lie_about_a_function_does_not_keep_the_rest_from_being_read(site: Site, number: int) -> None:
    name, behaviours = [*function_lies(site).items()][number]
    with site.middle.behaving(by_path(behaviours)):
        done = CliRunner().invoke(main, ["verify", "--remote", site.middle.url])
    assert (done.exit_code, "intents: none wrong" in done.stdout) == (1, True), (name, done.output)
    assert "WRONG" in done.stdout


def test_the_page_of_a_proxy_is_no_word_of_the_registry_about_a_function(site: Site) -> None:
    (cid,) = [each["CID"] for each in httpx2.get(f"{site.url}/functions").json()]
    page = always(Answered(404, {"content-type": "text/html"}, b"<html>no such page"))
    withheld = {"/functions": changing("/functions", lambda _: []), f"/functions/{cid}": page}
    with site.middle.behaving(by_path(withheld)):
        done = CliRunner().invoke(main, ["verify", "--remote", site.middle.url])
    assert (done.exit_code, "WRONG" in done.stdout) == (4, False), done.output
