"""`muniment events follow` where it is cut off, refused, or given nonsense."""

from __future__ import annotations

import itertools
import json
import re
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, Wallet, deploy, register
from follow_command import SECONDS_MAX, ended, follower, lines, subjects, until
from local_server import LocalServer
from ports import free_port
from scraped import Scraped
from service import Service
from warm import WarmProcess

EVENTS = 40
KILLS = 4
SIGNER = Wallet(11)


async def create(service: Service, count: int) -> list[str]:
    """The subjects of `count` new events, in order: of a function and its triggers."""
    async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
        cid = await deploy(client)
        drafts = [TriggerDraft(cid, SIGNER, version=f"1.0.{number}") for number in range(count - 1)]
        return [cid, *[(await register(client, draft))["sig"] for draft in drafts]]


def begin(service: Service, state: Path) -> None:
    """Have the next start show what happens from now on."""
    link = ok(httpx2.get(f"{service.url}/events")).headers["link"]
    found = re.search("cursor=([A-Za-z0-9_-]+)", link)
    assert found
    state.write_text(position_of(service, found[1]))


def position_of(service: Service, cursor: str) -> str:
    """The content of a position file."""
    return json.dumps({"cursor": cursor, "about": {"of": "events", "url": service.url}})


def polls(service: Service) -> float:
    """How many pages of the feed the service has answered."""
    scraped = Scraped(ok(httpx2.get(f"{service.url}/metrics")).text)
    return scraped.value("http_requests_total", method="GET", route="/events", status="200") or 0


async def test_a_command_gets_at_most_the_last_event_again_after_a_kill(tmp_path: Path) -> None:
    state, out = tmp_path / "position", tmp_path / "out"
    command = f"printf '%s\\n' \"$(cat)\" >> {out}; sleep 0.05"
    with Service(tmp_path / "data") as service:
        begin(service, state)
        expected = await create(service, EVENTS)
        for kill in range(1, KILLS + 1):
            process = follower(service, "--state", state, "--exec", command)
            until(lambda reached=kill * EVENTS // (KILLS + 1): len(set(subjects(out))) >= reached)
            # The command of the killed process has its standard error too, whose end this waits for.
            ended(process, signal.SIGKILL)
        process = follower(service, "--state", state, "--exec", command)
        until(lambda: len(set(subjects(out))) == EVENTS)
        ended(process)
    shown = subjects(out)
    assert [subject for subject, _ in itertools.groupby(shown)] == expected
    assert len(shown) <= EVENTS + KILLS


async def test_nothing_is_missed_after_a_kill_in_the_middle_of_a_page(tmp_path: Path) -> None:
    state, out = tmp_path / "position", tmp_path / "out"
    with Service(tmp_path / "data") as service:
        begin(service, state)
        expected = await create(service, EVENTS)
        process = follower(service, "--state", state, pipe_bytes=4_096)  # holds less than the page
        assert process.stdout
        assert expected[0] in process.stdout.readline()
        ended(process, signal.SIGKILL)
        with out.open("w") as file:
            process = follower(service, "--state", state, stdout=file)
            until(lambda: expected[-1] in subjects(out))
            ended(process)
    assert subjects(out) == expected


async def test_a_signal_lets_the_present_command_finish(tmp_path: Path) -> None:
    state, out, begun, goes_on = (tmp_path / name for name in ("position", "out", "begun", "goes-on"))
    command = f"touch {begun}; until test -e {goes_on}; do sleep 0.02; done; cat >> {out}; echo >> {out}"
    with Service(tmp_path / "data") as service:
        begin(service, state)
        expected = await create(service, 2)
        process = follower(service, "--state", state, "--exec", command)
        until(begun.exists)
        process.terminate()
        goes_on.touch()
        process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 128 + signal.SIGTERM
        assert subjects(out) == expected[:1]
        process = follower(service, "--state", state, "--exec", command)
        until(lambda: len(lines(out)) > 1)
        ended(process)
    assert subjects(out) == expected


async def test_a_follower_above_the_limit_asks_once_a_second(tmp_path: Path) -> None:
    states = [tmp_path / "first", tmp_path / "second"]
    with Service(tmp_path / "data", environment={"MUNIMENT_FEED_STREAMS_PER_CLIENT_MAX": "1"}) as service:
        followers = [follower(service, "--state", state) for state in states]
        until(lambda: all(state.exists() for state in states))
        began = time.monotonic()
        time.sleep(4)
        assert polls(service) < 12 + 2 * (time.monotonic() - began - 4)
        (expected,) = await create(service, 1)
        for process in followers:
            assert process.stdout
            assert expected in process.stdout.readline()
            ended(process)


async def test_a_refusal_for_a_while_is_named_and_waited_for(tmp_path: Path) -> None:
    state, out, errors, port = tmp_path / "position", tmp_path / "out", tmp_path / "errors", free_port()
    with Service(tmp_path / "data", port=port) as service:
        begin(service, state)
        expected = await create(service, 2)
    with Service(tmp_path / "data", port=port, environment={"MUNIMENT_RATE_LIMIT_CLIENT": "40/60s"}) as service:

        def is_refused() -> bool:
            until(lambda: httpx2.get(f"{service.url}/events").status_code == 429)
            return "answers 429" in errors.read_text()

        with out.open("w") as shown, errors.open("w") as said:
            is_refused()
            process = follower(service, "--state", state, stdout=shown, stderr=said)
            until(is_refused)
            until(lambda: subjects(out) == expected)
            ended(process)


@pytest.mark.parametrize(
    ("url", "position", "message"),
    [
        ("127.0.0.1:1", "", "has the form http://host"),
        ("ftp://127.0.0.1", "", "has the form http://host"),
        ("ftp://user:secret@127.0.0.1", "", "remove the user and the password"),
        ("http://127.0.0.1:1", "no position", "is not a position file"),
        ("http://127.0.0.1:1", "\u00e9", "is not a position file"),
    ],
)
def test_nonsense_is_named_at_the_start(tmp_path: Path, url: str, position: str, message: str) -> None:
    state = tmp_path / "position"
    state.write_text(position, "utf-8")
    nowhere = Service(tmp_path / "data")
    nowhere.url = url
    process = follower(nowhere, "--state", state)
    _, said = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 2
    assert message in said
    assert "secret" not in said
    assert state.read_text("utf-8") == position


@contextmanager
def hostile_service(tmp_path: Path, events: object, link: str) -> Generator[Service]:
    """A server that answers these events and this header to every request."""
    content = json.dumps(events).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.send_header("link", link)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with LocalServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        service = Service(tmp_path / "data")
        service.url = f"http://127.0.0.1:{server.server_port}"
        yield service
        server.shutdown()
        thread.join()


def ended_by_itself(process: WarmProcess) -> tuple[int, str]:
    """The exit status, and what was said on standard error. One that does not end in time is killed."""
    try:
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.wait(), said


def test_a_header_made_to_take_time_is_refused_at_once(tmp_path: Path) -> None:
    with hostile_service(tmp_path, [], "<?cursor=a" * 6_000) as service:
        process = follower(service)
        status, said = ended_by_itself(process)
    assert status == 4
    assert "a Link header that has no cursor: that is no registry" in said


@pytest.mark.parametrize("event_id", ["", "a\n", "a b", "\u00e9", "../a", "a" * 201])
def test_an_id_that_is_no_position_is_refused_and_does_not_reach_the_file(tmp_path: Path, event_id: str) -> None:
    state = tmp_path / "position"
    event = {"id": event_id, "type": "t", "subject": "s", "time": "t", "data": {}}
    with hostile_service(tmp_path, [event], '</events?cursor=a>; rel="next"') as service:
        position = position_of(service, "ZS0wYmFkY2FmZS0xMDA")
        state.write_text(position)
        process = follower(service, "--state", state, "--exec", "cat > /dev/null")
        status, said = ended_by_itself(process)
    assert status == 5
    assert "the answer does not match the interface" in said
    assert json.loads(state.read_text()) == json.loads(position)
