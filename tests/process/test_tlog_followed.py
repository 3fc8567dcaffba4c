"""The commands that follow a log, against services: an honest one, one that lies, and one with another history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

import warm
from answers import ok
from builders import Wallet, deploy, register
from followed_world import BUNDLE, LOG, OWNER, Site, changing, draft_of, fill, followed_registry
from log_site import opened_epoch
from middle import Answered, Asked, Behaviour, Forward
from muniment.client import Forged, Registry
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from service import Service

INVENTED = str(Wallet(5).sign_text("x"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with followed_registry(tmp_path_factory.mktemp("log")) as made:
        yield made


def run(*words: str | Path, cwd: Path) -> tuple[int, str]:
    done = warm.run(*words, directory=cwd, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_an_honest_registry_agrees_with_its_log(site: Site, tmp_path: Path) -> None:
    status, said = run("tlog", "verify", site.url, "--state", "seen", cwd=tmp_path)
    assert (status, said.splitlines()[0].split(",")[0]) == (0, "registry.example/log/1: 6 entries")
    status, said = run("tlog", "verify", site.url, "--state", "seen", cwd=tmp_path)
    assert status == 0
    assert "0 of them new" in said
    status, said = run("verify", "--remote", site.url, cwd=tmp_path)
    assert status == 0, said
    assert "the registry and its log agree" in said


def test_a_registry_that_shows_something_else_than_its_log_is_caught(site: Site, tmp_path: Path) -> None:
    def active(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{name: value for name, value in each.items() if name != "deactivateSig"} for each in listed]

    def invented(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**each, "deactivateSig": INVENTED} for each in listed]

    lies = {
        f"trigger {site.sigs[1]} is ended in the log by {site.ending}, but the registry shows it as active": active,
        f"trigger {site.sigs[0]} is in the log, but the registry does not list it": lambda listed: listed[1:],
        f"trigger {site.sigs[0]} differs from its entry in the log": (
            lambda listed: [{**each, "description": "another"} for each in listed]
        ),
    }
    for words, lie in lies.items():
        with site.middle.behaving(changing("/triggers", lie)):
            status, said = run("verify", "--remote", site.middle.url, cwd=tmp_path)
        assert status == 1, said
        assert f"WRONG {words}" in said
    with site.middle.behaving(changing("/triggers", invented)):
        status, said = run("verify", "--remote", site.middle.url, cwd=tmp_path)
    assert (status, said.count("WRONG")) == (1, 2), said
    assert f"WRONG trigger {site.sigs[0]} is ended by {INVENTED}, which neither the registry nor its log has" in said
    assert (
        f"WRONG trigger {site.sigs[1]} is ended in the log by {site.ending}, but in the registry by {INVENTED}" in said
    )
    assert "deactivations: none wrong" in said  # the rest is read all the same
    renamed = changing("/functions", lambda listed: [{**each, "name": "Another"} for each in listed])
    with site.middle.behaving(renamed):
        status, said = run("verify", "--remote", site.middle.url, cwd=tmp_path)
    assert (status, said.count("WRONG"), "differs from its listing" in said) == (1, 1, True), said
    with site.middle.behaving(changing("/functions", lambda _: [])):
        status, said = run("verify", "--remote", site.middle.url, cwd=tmp_path)
    assert status == 0, said  # the log names the function, and it is there


def test_what_the_registry_shows_of_a_deactivation_is_compared_with_the_log(site: Site, tmp_path: Path) -> None:
    path, name = f"/deactivations/{site.ending}", f"deactivation {site.ending}"
    another = {"createdAt": "2020-01-01T00:00:00.000Z"}
    lies: dict[str, Behaviour] = {
        f"WRONG {name} differs from its entry in the log": changing(path, lambda record: {**record, **another}),
        "WRONG asked for the form eip712, but got eip191": changing(path, lambda record: {**record, "form": "eip191"}),
        f"WRONG {name} is in the log, but not in the registry": lambda asked, forward: (
            Answered(404, {"content-type": "application/json"}, b'{"code": "deactivation-not-found", "detail": "no"}')
            if asked.target == path
            else forward()
        ),
    }
    for words, lie in lies.items():
        with site.middle.behaving(lie):
            status, said = run("verify", "--remote", site.middle.url, cwd=tmp_path)
        assert (status, words in said, "deactivations: 1 wrong" in said) == (1, True, True), said


def test_a_trigger_whose_function_the_registry_lacks_is_told_and_the_rest_is_read(site: Site, tmp_path: Path) -> None:
    def lack(asked: Asked, forward: Forward) -> Answered:
        problem = b'{"code": "content-not-found", "detail": "no such block"}'
        is_meant = asked.target.startswith("/ipfs/")
        return Answered(404, {"content-type": "application/json"}, problem) if is_meant else forward()

    with site.middle.behaving(lack):
        status, said = run("verify", "--remote", site.middle.url, cwd=tmp_path)
    assert status == 1, said
    assert f"WRONG trigger {site.sigs[0]} uses a function that the service lacks: no such block" in said
    assert "deactivations: none wrong" in said


def test_a_record_with_a_false_name_of_its_wallet_is_forged(site: Site) -> None:
    another = Wallet(5).address
    with Registry(site.url) as registry:
        (function,) = registry.functions.list()
        assert registry.log.prove(function).origin == "registry.example/log/1"
        for false, named in ((replace(function, creator=Address.parse(another)), None), (function, another)):
            with pytest.raises(Forged, match="does not have this record"):
                registry.log.prove(false, creator=named)
        trigger, deactivation = registry.triggers.get(site.sigs[1]), registry.triggers.deactivation(site.ending)
        for record in (
            replace(trigger, sig=Signature.parse(INVENTED)),
            replace(deactivation, signature=Signature.parse(INVENTED)),
        ):
            with pytest.raises(Forged, match="does not have this record"):
                registry.log.prove(record)


def test_another_history_is_proved_by_two_notes(site: Site, tmp_path: Path) -> None:
    assert run("tlog", "verify", site.url, "--state", "seen", cwd=tmp_path)[0] == 0
    kept = (tmp_path / "seen").read_bytes()
    with Service(tmp_path / "other", environment=LOG) as other:
        asyncio.run(fill(other.url))
        status, said = run("tlog", "verify", other.url, "--state", "seen", cwd=tmp_path)
    assert status == 1, said
    assert "the log registry.example/log/1 has signed two histories, of 6 and 6 entries" in said
    honest, forked = [Path(line.removeprefix("proof: ")) for line in said.splitlines() if line.startswith("proof: ")]
    assert {path.name for path in tmp_path.glob("*.note")} == {honest.name, forked.name}
    assert all((tmp_path / name).read_text().startswith("registry.example/log/1\n6\n") for name in (honest, forked))
    assert (tmp_path / "seen").read_bytes() == kept
    # Whoever has one of the notes can show the fork to others.
    status, said = run("tlog", "verify", site.url, "--against", forked, cwd=tmp_path)
    assert status == 1, said
    assert run("tlog", "verify", site.url, "--against", honest, cwd=tmp_path)[0] == 0
    (tmp_path / "foreign.note").write_bytes(opened_epoch(7).note().data)
    status, said = run("tlog", "verify", site.url, "--against", honest, "--against", "foreign.note", cwd=tmp_path)
    assert (status, "WRONG the registry shows no log site.example/log/7" in said) == (1, True), said


def test_what_is_gone_or_no_log_is_said(site: Site, tmp_path: Path) -> None:
    status, said = run("tlog", "verify", "http://127.0.0.1:9", cwd=tmp_path)
    assert status == 2, said
    (tmp_path / "bad").write_text("{}")
    status, said = run("tlog", "verify", site.url, "--state", "bad", cwd=tmp_path)
    assert status == 2
    assert "bad was not written by this command" in said
    seen = {"origin": "other/log/1", "vkeys": ["a", "b"], "note": ""}
    (tmp_path / "seen").write_text(json.dumps(seen))
    status, said = run("tlog", "verify", site.url, "--state", "seen", cwd=tmp_path)
    assert (status, said.splitlines()[0]) == (3, "the registry no longer shows the log other/log/1")


async def test_deactivations_are_given_to_another_registry(site: Site, tmp_path: Path) -> None:
    with Service(tmp_path / "other", environment={}) as other:
        async with httpx2.AsyncClient(base_url=other.url) as client:
            cid = await deploy(client, BUNDLE, wallet=OWNER)
            assert (await register(client, draft_of(cid, 2)))["sig"] == site.sigs[1]
            for _ in range(2):
                status, said = run("tlog", "replay", site.url, "--to", other.url, cwd=tmp_path)
                assert (status, said) == (0, "1 deactivation posted, 0 of unknown triggers, 0 refused\n")
            trigger = ok(await client.get(f"/triggers/{site.sigs[1]}")).json()
            assert trigger["deactivateSig"] == site.ending
            bundle = tmp_path / "mirror" / "tile" / "entries" / "000.p"
            bundle.mkdir(parents=True)
            data = await client.get(f"{site.url}/log/1/tile/entries/000.p/6")
            (bundle / "6").write_bytes(data.content)
        status, said = run("tlog", "replay", tmp_path / "mirror", "--to", other.url, cwd=tmp_path)
        assert (status, said) == (0, "1 deactivation posted, 0 of unknown triggers, 0 refused\n")
        status, said = run("tlog", "replay", tmp_path / "other", "--to", other.url, cwd=tmp_path)
        assert status == 2
        assert "there is no mirror of a log" in said
