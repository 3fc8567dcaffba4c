"""Many writers of one intent through several services of one database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from answers import answered
from crashing import Site, on_database
from in_turn import client_in_turn
from operator_client import FAR_DEADLINE, IntentDraft, OperatorClient, hash_of_proposal, log, proposal


@pytest.fixture
def site(tmp_path: Path, postgres_url: str) -> Iterator[Site]:
    with on_database(tmp_path, postgres_url) as made:
        yield made


async def test_every_acknowledged_write_of_several_services_is_there_once_and_the_status_is_one_of_theirs(
    site: Site,
) -> None:
    async with client_in_turn(site.urls) as client:
        operator = OperatorClient(client, site.command("operators", "add", "relayer"))
        draft = IntentDraft(deadline=FAR_DEADLINE)
        bodies = [draft.saying(logs=[log(n)]).body for n in range(10)]
        await asyncio.gather(
            *(answered(client, "PUT", f"/intents/{draft.hash}", json=each, headers=operator.headers) for each in bodies)
        )
        appended = [
            answered(client, "POST", f"/intents/{draft.hash}/{kind}", json=make(n % 30), headers=operator.headers)
            for n in range(60) for kind, make in (("proposals", proposal), ("logs", log))
        ]  # fmt: skip
        moves = [operator.move(draft.hash, status) for status in ("discarded", "enqueued") * 5]
        answers = await asyncio.gather(*appended, *moves)
        moved = {answer.json()["status"] for answer in answers[len(appended) :] if answer.status_code == 200}
        end = await operator.read(draft.hash)
        assert end["status"] in {"enqueued", "discarded"}
        assert end["status"] in moved
        assert sorted(each["id"] for each in end["logs"]) == sorted(f"relayer/{n}" for n in range(30))
        named = {hash_of_proposal(draft.hash, proposal(n)) for n in range(30)}
        assert len(end["proposals"]) == 30
        assert {each["hash"] for each in end["proposals"]} == named
