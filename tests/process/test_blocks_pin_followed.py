"""`muniment blocks pin --follow` as a process: it waits for a node and a registry, and ends by a signal."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import warm
from each_row import each_row
from follow_command import SECONDS_MAX, ended, until
from middle import Answered, Asked, Forward, Middle
from pin_node import PinNode, pin_node
from pinning_world import deployed, middle, node, service, versions
from ports import free_port
from service import Service
from warm import WarmProcess

__all__ = ["middle", "node", "service"]  # the fixtures
# The command with a list that is read again at once while a bundle is refused.
HASTY = ("-c", "from muniment.cli.client import pins; pins._AGAIN_S = 0; from muniment.__main__ import main; main()")


@pytest.fixture(scope="module")
def new(service: Service) -> Callable[[], str]:
    """Deploys one more function; its CID."""
    numbers = iter(range(100))

    def deploy() -> str:
        (cid,) = deployed(service.url, *versions(next(numbers), 1))
        return cid

    return deploy


@contextmanager
def following(url: str, kubo: str, home: Path, program: tuple[str, ...] = ("-m", "muniment")) -> Generator[WarmProcess]:
    """The command, with its outputs in files of `home`; a failed test does not leave it running."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
    words = ["blocks", "pin", "--url", url, "--kubo", kubo, "--follow"]
    environment = {**plain, "HOME": str(home), "PYTHONPATH": str(warm.UNHURRIED)}
    with (home / "out").open("w") as out, (home / "err").open("w") as error:
        process = warm.popen(words, environment, program, stdout=out.fileno(), stderr=error.fileno())
        try:
            yield process
        finally:
            process.kill()
            process.wait(SECONDS_MAX)


def texts(home: Path) -> tuple[str, str]:
    return (home / "out").read_text(), (home / "err").read_text()


def test_it_pins_all_functions_and_then_each_new_one_until_a_signal(
    service: Service, new: Callable[[], str], node: PinNode, tmp_path: Path
) -> None:
    old = new()
    with following(service.url, node.url, tmp_path) as process:
        until(lambda: old in node.pinned)
        added = new()
        until(lambda: f"pinned {added}\n" in texts(tmp_path)[0])
        status, _ = ended(process)
    assert (status, texts(tmp_path)[1]) == (128 + signal.SIGTERM, "")
    assert list(node.pinned)[-1] == added
    assert sorted(node.imports) == sorted(node.pinned)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["err", "out"]


def test_a_node_that_is_away_is_waited_for_and_named_once(
    service: Service, new: Callable[[], str], tmp_path: Path
) -> None:
    cid, port = new(), free_port()
    with following(service.url, f"http://127.0.0.1:{port}", tmp_path):
        until(lambda: "trying again" in texts(tmp_path)[1])
        with pin_node(port, look_status=503) as ill:
            until(lambda: len(ill.looks) > 2)
            assert not ill.imports
            ill.look_status = 200
            until(lambda: f"pinned {cid}\n" in texts(tmp_path)[0])
            assert cid in ill.pinned
    assert texts(tmp_path)[1].count("\n") == 1


def test_a_registry_that_is_away_is_waited_for_and_named_once(
    middle: Middle, new: Callable[[], str], node: PinNode, tmp_path: Path
) -> None:
    cid = new()
    before_ = middle.behave
    middle.behave = lambda _asked, _forward: Answered(503, {}, b'{"code":"overloaded","detail":"busy"}')
    with following(middle.url, node.url, tmp_path):
        until(lambda: len(middle.asked) > 2)
        middle.behave = before_
        until(lambda: cid in node.pinned)
    assert texts(tmp_path)[1] == "the service answers 503: busy; trying again\n"


def test_a_cursor_that_is_too_old_leads_back_to_the_list(
    middle: Middle, new: Callable[[], str], node: PinNode, tmp_path: Path
) -> None:
    """As after a restore, where the feed never tells of a function that came meanwhile."""
    new()
    added: list[str] = []

    def behave(asked: Asked, forward: Forward) -> Answered:
        if "cursor=" in asked.target and asked.target.startswith("/events") and not added:
            added.append(new())
            return Answered(410, {}, b'{"code":"cursor-too-old","detail":"gone"}')
        return forward()

    with middle.behaving(behave), following(middle.url, node.url, tmp_path) as process:
        until(lambda: added and added[0] in node.pinned)
        status, _ = ended(process, signal.SIGINT)
    assert status == 128 + signal.SIGINT
    assert texts(tmp_path)[1].count("reading the list again") == 1


def test_a_bundle_that_was_refused_is_tried_again(
    service: Service, new: Callable[[], str], node: PinNode, tmp_path: Path
) -> None:
    cid = new()
    node.fault, node.faulty = "500", cid
    with following(service.url, node.url, tmp_path, HASTY):
        until(lambda: node.imports.count(cid) > 1)
        assert cid not in node.pinned
        node.fault = ""
        until(lambda: cid in node.pinned)
        until(lambda: f"pinned {cid}\n" in texts(tmp_path)[0])
    assert f"not pinned: {cid}: dag/import answered 500: import failed" in texts(tmp_path)[1]


def test_a_signal_does_not_wait_for_a_node_that_is_silent(
    service: Service, new: Callable[[], str], node: PinNode, tmp_path: Path
) -> None:
    new()
    node.may_answer.clear()
    with following(service.url, node.url, tmp_path) as process:
        until(lambda: node.looks)
        status, _ = ended(process)
    assert (status, node.pinned) == (128 + signal.SIGTERM, {})


EVENT = {"id": "abc", "type": "function.created", "time": "2026-11-20T19:48:00.123Z", "data": {}}
CID = "QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ"


@each_row(("subject", "cursor", "reason"), [
    ("\x1b]0;" + "Q" * 1_000_000, "abd", "answers with a function that has no CID"),
    (CID, "abc", "answers with records and no new cursor: they would repeat for ever"),
])  # fmt: skip
def test_events_that_no_registry_has_end_the_command(
    middle: Middle, node: PinNode, tmp_path: Path, subject: str, cursor: str, reason: str
) -> None:
    def behave(asked: Asked, forward: Forward) -> Answered:
        if not asked.target.startswith("/events"):
            return forward()
        begins = "wait" not in asked.target
        link = f'</events?cursor={"abc" if begins else cursor}>; rel="next"'
        events = [] if begins else [{**EVENT, "subject": subject}] * 3
        return Answered(200, {"content-type": "application/json", "link": link}, json.dumps(events).encode())

    with middle.behaving(behave), following(middle.url, node.url, tmp_path) as process:
        assert process.wait(SECONDS_MAX) == 4
    errors = texts(tmp_path)[1]
    assert (CID in node.looks, reason in errors, len(errors) < 300) == (False, True, True)


def test_without_a_change_feed_it_says_what_to_do_instead(tmp_path: Path, node: PinNode) -> None:
    with (
        Service(tmp_path / "registry", environment={"MUNIMENT_FEED": "off"}) as service,
        following(service.url, node.url, tmp_path) as process,
    ):
        assert process.wait(SECONDS_MAX) == 1
    assert texts(tmp_path) == (
        "", "Error: the registry has no change feed: run the command with --once, by a timer\n",
    )  # fmt: skip
