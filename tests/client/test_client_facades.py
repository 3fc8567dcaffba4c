"""Every operation of the client, through both facades, against a service on both databases."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from facades_world import (
    CHAIN_ID,
    Calls,
    bundle,
    calls_of,
    draft,
    hash_of,
    new_intent,
    new_proposal,
    numbers,
    signer,
    spelled_v1,
)

from builders import cron
from muniment.client import (
    AsyncRegistry,
    Checkpoint,
    FunctionNotFound,
    IntentNotFound,
    Registry,
    Retry,
    TriggerNotFound,
    Unreachable,
)
from muniment.client.offers import sign_proposal
from muniment.protocol.errors import Forbidden, Invalid, RunNotFound, StatusConflict
from muniment.protocol.wire import encode
from operator_client import FAR_DEADLINE, SETTLER
from postgres import Cluster
from run_bodies import hash_of as run_hash, next_run_of
from service import Service

GENERATIONS = pytest.mark.parametrize("generation", [1, 2])


@dataclass(frozen=True)
class Site:
    """A service, and the key of an operator."""

    url: str
    key: str


_SITES = itertools.count()  # a process of the tests may come back to this module


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    environment: dict[str, str] = {}
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("cluster")
        url = asyncio.run(cluster.create_database(f"facades-{next(_SITES)}"))
        environment = {"MUNIMENT_DATABASE_URL": url, "MUNIMENT_MIGRATE_AT_START": "true"}
    with Service(tmp_path_factory.mktemp("facades") / "data", environment=environment) as service:
        yield Site(service.url, service.operator_key())


@pytest.fixture(params=["sync", "aio"])
def registry(request: pytest.FixtureRequest, site: Site) -> Iterator[Calls]:
    """A client with an unused wallet."""
    calls = calls_of(
        request.param, site.url, signer=signer(), operator_key=site.key, chains={CHAIN_ID: SETTLER}, timeout_s=20
    )
    yield calls
    calls.close()


@pytest.fixture
def owner(registry: Calls) -> str:
    """The wallet of the client."""
    return str(registry.do("account.profile").user_address)


@pytest.fixture
def cid(registry: Calls) -> str:
    """A function that has no trigger yet."""
    return registry.do("functions.deploy", bundle()).cid


def test_a_folder_is_deployed_once_however_often_it_is_sent(registry: Calls, owner: str, tmp_path: Path) -> None:
    made = bundle()
    made.write(tmp_path / "build")
    first = registry.do("functions.deploy", tmp_path / "build")
    assert registry.do("functions.deploy", str(tmp_path / "build")) == first == registry.do("functions.deploy", made)
    assert (first.creator, first.cid in made.cids()) == (owner, True)


def test_a_function_is_read_by_both_spellings_of_its_cid(registry: Calls, owner: str, cid: str) -> None:
    for spelling in (cid, spelled_v1(cid)):
        assert registry.do("functions.get", spelling).creator == owner
        assert registry.do("functions.manifest", spelling).inputs == {}
        (found,) = registry.every("functions.list", cids=[spelling])
        assert found.cid == cid
    with pytest.raises(FunctionNotFound):
        registry.do("functions.get", bundle().cids()[0])


def test_functions_are_listed_oldest_first_and_by_creator_in_any_case(registry: Calls, owner: str) -> None:
    cids = [registry.do("functions.deploy", bundle()).cid for _ in range(3)]
    for creator in (owner, owner.lower(), "0x" + owner[2:].upper()):
        assert [each.cid for each in registry.every("functions.list", creator=creator, limit=1)] == cids
    name = registry.do("functions.get", cids[1]).name
    for spelling in (name, name.upper()):
        assert [each.cid for each in registry.every("functions.list", creator=owner, name=spelling)] == cids[1:2]


def test_a_download_has_the_bytes_that_were_deployed(registry: Calls, tmp_path: Path) -> None:
    made = bundle(wasm=b"\0asm\1\0\0\0" + b"\0\x84\x80\x20\x01m" + b"\x07" * (2**19 + 2))
    cid = registry.do("functions.deploy", made).cid
    assert registry.do("functions.download", spelled_v1(cid), tmp_path / "copy") == made
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["function.wasm", "manifest.json"]
    with pytest.raises(OSError, match="copy"):
        registry.do("functions.download", cid, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_a_trigger_is_signed_posted_and_read(registry: Calls, owner: str, cid: str) -> None:
    signed = registry.do("triggers.sign", draft(cid))
    created = registry.do("triggers.create", signed)
    assert (created.sig, created.signer, created.function_cid) == (signed.sig, owner, cid)
    assert created == registry.do("triggers.get", signed.sig) == registry.do("triggers.create", draft(cid))
    with pytest.raises(TriggerNotFound):
        registry.do("triggers.get", registry.do("triggers.sign", draft(cid, version="9.9.9")).sig)


def test_a_trigger_with_inputs_is_signed_in_the_other_spelling_of_its_cid(registry: Calls) -> None:
    inputs: dict[str, Any] = {"to": "address", "amount": "TokenAmount", "note": "string", "wide": "uint256"}
    cid = registry.do("functions.deploy", bundle(inputs=inputs)).cid
    token = {"token": {"address": SETTLER, "chainId": CHAIN_ID}, "amount": "7"}
    given = {"to": SETTLER, "amount": token, "note": "für dich", "wide": str(2**256 - 1)}
    created = registry.do("triggers.create", draft(spelled_v1(cid), input=given))
    assert created == registry.do("triggers.get", created.sig)


def test_a_preview_is_made_without_signing(registry: Calls, cid: str) -> None:
    shown = registry.do("triggers.preview", draft(cid))
    assert cid in " ".join(shown.summary)
    assert len(shown.next_runs) == 5


def test_triggers_are_listed_by_signer_function_and_activity(registry: Calls, owner: str, cid: str) -> None:
    made = [registry.do("triggers.create", draft(cid, version=f"{n}.0.0")).sig for n in range(3)]
    registry.do("triggers.deactivate", made[:1])
    for named in ({"signer": owner.lower()}, {"function_cid": spelled_v1(cid)}, {"signer": owner, "function_cid": cid}):
        assert [each.sig for each in registry.every("triggers.list", limit=2, **named)] == made
        assert [each.sig for each in registry.every("triggers.list", active=True, **named)] == made[1:]
        assert [each.sig for each in registry.every("triggers.active", **named)] == made[1:]
        assert [each.sig for each in registry.every("triggers.list", active=False, **named)] == made[:1]


def test_triggers_are_followed_from_a_cursor(registry: Calls, owner: str, cid: str) -> None:
    made = [registry.do("triggers.create", draft(cid, version=f"{n}.0.0")).sig for n in range(2)]
    (page,) = registry.pages("triggers.follow", 1, signer=owner.lower())
    assert [each.sig for each in page] == made
    third = registry.do("triggers.create", draft(cid, version="3.0.0")).sig
    (page,) = registry.pages("triggers.follow", 1, after=page.cursor, function_cid=spelled_v1(cid), signer=owner)
    assert [each.sig for each in page] == [third]


def test_a_deactivation_is_seen_by_refreshing(registry: Calls, cid: str) -> None:
    made = [registry.do("triggers.create", draft(cid, version=f"{n}.0.0")).sig for n in range(3)]
    registry.do("triggers.deactivate", made[:2])
    registry.do("triggers.deactivate", made[:2])
    found = registry.do("triggers.refresh", [*made, made[0]])
    assert {*found} == {*made}
    ended = {sig for sig, trigger in found.items() if isinstance(trigger.deactivate_sig, str)}
    assert ended == {*made[:2]}


def test_a_login_gives_a_token_an_api_key_and_a_profile(registry: Calls, owner: str) -> None:
    token, key = registry.do("account.log_in"), registry.do("account.api_key")
    assert token.count(".") == 2
    assert owner[2:].lower() in key == registry.do("account.api_key")
    profile = registry.do("account.profile")
    assert (profile.user_address, profile.name) == (owner, "")
    assert registry.do("account.balances") == []


def test_the_tokens_of_a_client_live_as_long_as_it_has_asked(registry: Calls) -> None:
    for asked, lifetime_s in ((None, 86_400), (90, 90), (None, 90)):
        token = registry.do("account.log_in", lifetime_s=asked)
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        assert claims["exp"] - claims["iat"] == lifetime_s


def test_a_rotation_ends_the_first_key_and_the_client_goes_on_with_the_second(registry: Calls, site: Site) -> None:
    first = registry.do("account.api_key")
    second = registry.do("account.rotate_api_key", grace_s=0)
    assert second != first
    assert registry.do("account.api_key") == second
    registry.do("functions.deploy", bundle())
    with Registry(site.url, api_key=first) as late, pytest.raises(Forbidden):
        late.functions.deploy(bundle())


def test_events_tell_of_what_happens_after_the_begin(registry: Calls, owner: str, cid: str) -> None:
    begun = registry.do("events.begin")
    sig = registry.do("triggers.create", draft(cid)).sig
    registry.do("triggers.deactivate", [sig])
    pages = registry.pages("events.follow", 1, after=begun, owner=owner.lower(), types=["trigger.created"])
    assert [(event.type, event.subject) for event in pages[0]] == [("muniment.trigger.created", sig)]


@GENERATIONS
def test_an_intent_is_put_proposed_to_logged_and_moved(registry: Calls, generation: int) -> None:
    new = new_intent(generation)
    hash_ = hash_of(new)
    with pytest.raises(IntentNotFound):
        registry.do("intents.get", hash_)
    with pytest.raises(IntentNotFound):
        registry.do("intents.moves", hash_)
    recorded = registry.do("intents.put", new)
    assert (recorded.hash, recorded.status, recorded) == (hash_, "created", registry.do("intents.put", new))
    offer = registry.do("intents.propose", hash_.upper().replace("X", "x"), new_proposal(generation))
    assert offer == registry.do("intents.propose", hash_, new_proposal(generation))
    line = registry.do("intents.log", hash_, "warning", "a line")
    assert registry.do("intents.log", hash_, "warning", "a line", id=line.id) == line
    registry.do("intents.log", hash_, "info", "another line", id="mine")
    registry.do("intents.move", hash_, "accepted", proposal=offer.hash)
    registry.do("intents.move", hash_, "enqueued")
    moved = registry.do("intents.move", hash_, "submitted", transaction_hash="0x" + "ab" * 32)
    assert (moved.status, moved.transaction_hash) == ("submitted", "0x" + "ab" * 32)
    with pytest.raises(StatusConflict):
        registry.do("intents.move", hash_, "enqueued")
    found = registry.do("intents.get", hash_)
    known = registry.do("intents.moves", hash_)
    assert [each.status for each in known] == ["created", "enqueued", "submitted"]
    assert sorted(each.at for each in known) == [each.at for each in known]
    assert [each.status for each in found.proposals] == ["accepted"]
    assert {each.data for each in found.logs} == {"a line", "another line"}


@GENERATIONS
def test_intents_and_proposals_are_written_from_plain_values(registry: Calls, generation: int) -> None:
    new, offer = new_intent(generation), new_proposal(generation)
    members, offered = json.loads(encode(new)), json.loads(encode(offer))
    assert registry.do("intents.put", members).hash == hash_of(new)
    assert registry.do("intents.propose", hash_of(new), offered) == registry.do("intents.propose", hash_of(new), offer)
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({**members, "deadline": 5}, "invalid-body", "/deadline"),
        ({**members, "deadline": "5.0"}, "invalid-amount", "/deadline"),
        ({**members, "proposals": [{**offered, "solver": "0x1"}]}, "invalid-address", "/proposals/0/solver"),
        ({name: value for name, value in members.items() if name != "settler"}, "invalid-body", "/settler"),
        ({}, "invalid-body", ""),
    ]
    for given, code, pointer in wrong:
        with pytest.raises(Invalid) as refused:
            registry.do("intents.put", given)
        assert (refused.value.code, refused.value.faults[0].pointer) == (code, pointer)
        assert refused.value.answer is None  # nothing was sent
    data = {"data": "zz"} if generation == 1 else {"datas": ["zz"]}
    with pytest.raises(Invalid, match="hex"):
        registry.do("intents.propose", hash_of(new), {**offered, **data})


@GENERATIONS
def test_a_signed_proposal_is_verified_by_the_service(registry: Calls, generation: int) -> None:
    intent = registry.do("intents.put", new_intent(generation))
    solver = signer()
    offer = sign_proposal(solver, intent, chain_id=CHAIN_ID, fees=["3", 4], deadline=FAR_DEADLINE, data="0xbeef")
    assert registry.do("intents.propose", intent.hash, offer).verified is True
    (found,) = registry.do("intents.get", intent.hash).proposals
    assert (found.verified, found.solver, found.signers) == (True, solver.address, [solver.address])


@GENERATIONS
def test_intents_are_listed_and_followed_by_their_members(registry: Calls, generation: int) -> None:
    user, trigger_sig = signer().address, f"0x{next(numbers):0128x}1b"
    names = (
        {"user": user, "configSig": trigger_sig} if generation == 1 else {"feePayer": user, "triggerSig": trigger_sig}
    )
    made = [registry.do("intents.put", new_intent(generation, **names)).hash for _ in range(3)]
    registry.do("intents.move", made[0], "discarded")
    for named in ({"user": user.lower()}, {"user": user, "settler": SETTLER.lower()}, {"config_sig": trigger_sig}):
        assert [each.hash for each in registry.every("intents.list", limit=2, **named)] == made
        assert [each.hash for each in registry.every("intents.list", status="created", **named)] == made[1:]
        (page,) = registry.pages("intents.follow", 1, **named)
        assert [each.hash for each in page] == made
    last = registry.do("intents.put", new_intent(generation, **names)).hash
    (page,) = registry.pages("intents.follow", 1, after=page.cursor, config_sig=trigger_sig)
    assert [each.hash for each in page] == [last]


def test_a_run_is_recorded_read_listed_and_orphaned(registry: Calls, cid: str) -> None:
    trigger = registry.do("triggers.create", draft(cid, config=cron(schedule="* * * * *")))
    plain = {"sig": str(trigger.sig), "config": trigger.config, "createdAt": trigger.created_at}
    new = next_run_of(plain, result="intents", outputs=[{"hash": "0x" + "ab" * 32}])
    hash_ = run_hash(new)
    for _ in range(2):
        recorded = registry.do("runs.record", new)
        assert (recorded.hash, recorded.status, recorded.validations) == (hash_, "valid", 1)
    note = registry.do("runs.record", next_run_of(plain, result="stopped", reason={"code": "time", "text": ""}))
    assert note.hash == hash_
    found = registry.do("runs.get", hash_)
    assert (found.inputs, found.context, found.logs) == (new.inputs, new.context, new.logs)
    for filters in ({}, {"result": "intents"}, {"newest_first": True}, {"relayer": str(found.relayer), "limit": 1}):
        (listed,) = registry.every("runs.list", trigger_sig=trigger.sig, **filters)
        assert listed.hash == hash_
    for filters in ({"result": "nothing"}, {"created_before": 1}, {"relayer": SETTLER}):
        assert registry.every("runs.list", trigger_sig=trigger.sig, **filters) == []
    unknown = "0x" + "34" * 64 + "1b"
    assert {sig: run.hash for sig, run in registry.do("runs.latest", [trigger.sig, unknown]).items()} == {
        trigger.sig: hash_
    }
    gone = registry.do("runs.orphan", hash_, new.blocks[0].chain_id, new.blocks[0].hash)
    assert (gone.status, gone.validations) == ("invalid", 0)
    with pytest.raises(RunNotFound):
        registry.do("runs.get", "0x" + "cd" * 32)


def test_a_checkpoint_keeps_the_place_of_a_follower(registry: Calls, tmp_path: Path) -> None:
    user = signer().address
    made = [registry.do("intents.put", new_intent(user=user)).hash for _ in range(2)]
    place = Checkpoint(tmp_path / "place", user=user)
    (page,) = registry.pages("intents.follow", 1, user=user, after=place.read())
    place.write(page.cursor)
    made.append(registry.do("intents.put", new_intent(user=user)).hash)
    (page,) = registry.pages("intents.follow", 1, user=user, after=Checkpoint(tmp_path / "place", user=user).read())
    assert [each.hash for each in page] == made[2:]
    with pytest.raises(ValueError, match="name another file"):
        Checkpoint(tmp_path / "place", user=signer().address).read()


@GENERATIONS
async def test_a_writer_keeps_the_order_of_each_intent(site: Site, generation: int) -> None:
    news = [new_intent(generation) for _ in range(20)]
    async with AsyncRegistry(site.url, operator_key=site.key) as registry:
        async with registry.writer(concurrency=8, waiting_max=16) as writer:
            for new in news:
                await writer.put(new)
                await writer.propose(hash_of(new), new_proposal(generation))
                await writer.log(hash_of(new), "info", "enqueued next")
                await writer.move(hash_of(new), "enqueued")
        for new in news:
            found = await registry.intents.get(hash_of(new))
            assert (found.status, len(found.proposals), len(found.logs)) == ("enqueued", 1, 1)


def test_a_client_for_asyncio_says_that_it_belongs_to_one_loop() -> None:
    registry = AsyncRegistry("http://127.0.0.1:9", retry=Retry(tries=1))  # where nobody answers

    async def listed() -> None:
        async for _ in registry.functions.list():
            break

    with pytest.raises(Unreachable):
        asyncio.run(listed())
    for use in (listed, listed, registry.aclose):
        with pytest.raises(
            RuntimeError, match=r"make one in each asyncio.run\(…\), by `async with AsyncRegistry\(url\)"
        ):
            asyncio.run(use())


async def test_a_writer_reports_failed_writes(site: Site) -> None:
    stored, missing = new_intent(), new_intent()
    async with AsyncRegistry(site.url, operator_key=site.key) as registry, registry.writer() as writer:
        await writer.put(stored)
        await writer.move(hash_of(missing), "enqueued")
        with pytest.raises(ExceptionGroup) as raised:
            await writer.flush()
        (error,) = raised.value.exceptions
        assert isinstance(error, IntentNotFound)
        assert hash_of(missing) in "".join(error.__notes__)
        await writer.flush()
        assert (await registry.intents.get(hash_of(stored))).status == "created"
