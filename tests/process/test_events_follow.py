"""`muniment events follow` against a service: nothing is missed, whatever ends either of them."""

from __future__ import annotations

import itertools
import os
import pty
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from builders import Bundle, TriggerDraft, Wallet, deploy, register
from follow_command import SECONDS_MAX, ended, follower, lines, subjects, until, until_at_the_end, until_count
from ports import free_port
from service import Service

WALLETS = itertools.count(100)
# A follower sees a registry by HTTP alone; what the engines do is for the order of events.
both_engines = pytest.mark.parametrize("service", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A service on SQLite, or on the engine that a test names."""
    environment: dict[str, str] = {}
    if getattr(request, "param", "sqlite") == "postgres":
        environment["MUNIMENT_DATABASE_URL"] = request.getfixturevalue("postgres_url")
    with Service(tmp_path / "data", port=free_port(), environment=environment) as started:
        yield started


async def create(service: Service, name: str) -> str:
    async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
        return await deploy(client, Bundle(name), Wallet(next(WALLETS)))  # each has few nonces in a while


@both_engines
async def test_the_next_start_goes_on_where_the_last_one_ended(service: Service, tmp_path: Path) -> None:
    state, out = tmp_path / "position", tmp_path / "out"
    cids: list[str] = []
    for turn, number in enumerate((signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)):
        with out.open("a") as file:
            process = follower(service, "--state", state, stdout=file)
            until(state.exists)
            cids.extend([await create(service, f"{letter}{turn}") for letter in "AB"])
            until_count(out, len(cids))
            until_at_the_end(service.url, state)
            ended(process, number)
        cids.append(await create(service, f"C{turn}"))  # nobody follows now
    with out.open("a") as file:
        process = follower(service, "--state", state, stdout=file)
        until_count(out, len(cids))
        assert ended(process)[0] == 128 + signal.SIGTERM
    assert subjects(out) == cids


async def test_it_goes_on_when_the_service_comes_back(service: Service, tmp_path: Path) -> None:
    state, out = tmp_path / "position", tmp_path / "out"
    with out.open("w") as file:
        process = follower(service, "--state", state, stdout=file)
        until(state.exists)
        service.kill()
        assert process.stderr is not None
        said = ""
        while "trying again" not in said:
            said = process.stderr.readline()
            assert said, "it ended"
        service.launch()
        service.wait_until_ready()
        cid = await create(service, "F")
        until(lambda: subjects(out) == [cid])
        status, _ = ended(process)
    assert status == 128 + signal.SIGTERM


async def test_a_command_gets_each_event_and_its_failure_ends_it_before_the_next(
    service: Service, tmp_path: Path
) -> None:
    state, out, marker = tmp_path / "position", tmp_path / "out", tmp_path / "fails"
    command = f"test ! -e {marker} && cat >> {out} && echo >> {out}"
    process = follower(service, "--state", state, "--exec", command)
    until(state.exists)
    first = await create(service, "F")
    until(lambda: len(lines(out)) == 1)
    marker.touch()
    second = await create(service, "G")
    assert process.wait(SECONDS_MAX) == 3
    assert "the command ended with status 1" in process.communicate()[1]
    marker.unlink()
    again = follower(service, "--state", state, "--exec", command)
    until(lambda: len(lines(out)) == 2)
    ended(again)
    assert subjects(out) == [first, second]


async def test_only_what_the_filters_name_is_shown(service: Service, tmp_path: Path) -> None:
    state, out = tmp_path / "position", tmp_path / "out"
    signer = Wallet(7)
    with out.open("w") as file:
        options = ["--type", "trigger.created", "--signer", signer.address, "--state", state]
        process = follower(service, *options, stdout=file)
        until(state.exists)
        cid = await create(service, "F")
        async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
            await register(client, TriggerDraft(cid, Wallet(8)))
            trigger = await register(client, TriggerDraft(cid, signer))
        until(lambda: lines(out))
        time.sleep(0.3)
        ended(process)
    assert subjects(out) == [trigger["sig"]]


async def test_a_position_of_another_epoch_ends_it_unless_it_may_begin_again(service: Service, tmp_path: Path) -> None:
    state, out = tmp_path / "position", tmp_path / "out"
    process = follower(service, "--state", state)
    until(state.exists)
    await create(service, "F")
    ended(process)
    service.stop()
    service.run("epoch", "renew")
    service.launch()
    service.wait_until_ready()
    process = follower(service, "--state", state)
    _, said = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1
    assert "GET /events without a cursor" in said
    before = state.read_text()
    with out.open("w") as file:
        process = follower(service, "--state", state, "--reset", stdout=file)
        until(lambda: state.read_text() != before)
        cid = await create(service, "G")
        until(lambda: subjects(out) == [cid])
        assert "events were missed" in ended(process)[1]


async def test_people_get_a_line_with_colours_and_a_pipe_that_breaks_ends_it(service: Service, tmp_path: Path) -> None:
    state = tmp_path / "position"
    main, terminal = pty.openpty()
    process = follower(service, "--state", state, stdout=terminal)
    os.close(terminal)
    until(state.exists)
    cid = await create(service, "F")
    shown = os.read(main, 4_096).decode()
    ended(process)
    os.close(main)
    assert "\x1b[32mfunction.created" in shown
    assert f"{cid[:18]}…" in shown
    process = follower(service, "--state", state)
    assert process.stdout
    process.stdout.close()
    await create(service, "G")
    assert process.wait(SECONDS_MAX) == 1
    assert process.stderr
    assert process.stderr.read() == ""
    process.stderr.close()


def test_a_server_without_a_feed_is_named(service: Service) -> None:
    process = follower(service, "--type", "trigger.ended")
    _, said = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1
    assert "invalid-parameter" in said
    assert "muniment.trigger.created" in said
