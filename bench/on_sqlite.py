"""Everything that is measured on one large SQLite database."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

import alone
import figures
import growth
import pages
import peer
import seeding
import two_processes
import wrk
from ours import check_answers, deploy, muniment, register, wait_for_log
from samples import forged, signed_triggers
from scale import Scale
from server import HERE, Load, Server
from traffic import Loads, Traffic, take_turns


@dataclass
class Measured:
    """What the parts have found."""

    loads: Loads = field(default_factory=dict)
    wrk: Loads = field(default_factory=dict)
    inserts: list[float] = field(default_factory=list)
    figures: dict[str, list[Load]] = field(default_factory=dict)
    bare_upload: dict[str, list[float]] = field(default_factory=dict)
    pages: pages.Micros = field(default_factory=dict)
    growth: growth.Micros = field(default_factory=dict)
    processes: dict[str, dict[str, list[Load]]] = field(default_factory=dict)


def measure(scale: Scale) -> Measured:
    """Seed, then measure part by part."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        folders = {growth.FEW: home / "few", growth.SOME: home / "some", growth.ALL: home / "data"}
        data, few, peers = home / "data", home / "few", {name: home / f"{at}.db" for at, name in enumerate(peer.CURVES)}
        if not peer.is_installed():
            peers = {}
        seeded = signed_triggers(range(scale.registered))
        with muniment(data, has_log=False) as service, httpx2.Client(base_url=service.url) as client:
            cid = deploy(client)
            seeded = signed_triggers(range(scale.registered), cid)
            register(service, seeded)
        _seed(scale, cid, folders, list(peers.values()))
        found = Measured()
        traffic = Traffic(scale, cid, seeded)
        _measure_loads(found, scale, data, peers, traffic, (cid, seeded))
        found.inserts = alone.inserts(data / "muniment.db", scale)
        found.figures = figures.measure(scale, data)
        found.bare_upload = figures.bare_upload(home, scale.rounds)
        found.pages = pages.measure(scale, few, data)
        found.processes = two_processes.measure(scale, data, traffic)
        found.growth = growth.measure(scale, folders, cid)
        return found


def _seed(scale: Scale, cid: str, folders: Mapping[str, Path], peers: list[Path]) -> None:
    data = folders[growth.ALL]
    _copy_some(data, pages.FEW, folders[growth.FEW])
    seeding.spread(data / "muniment.db", scale.copies)
    _copy_some(data, scale.some_triggers, folders[growth.SOME])
    if peers:
        seeding.for_peer(data / "muniment.db", cid, peers)


def _copy_some(data: Path, count: int, to: Path) -> None:
    """A registry with the same secrets, blocks and functions, and the first `count` triggers."""
    subprocess.run(
        [sys.executable, "-m", "muniment", "migrate", "--data-dir", str(to)], check=True, stdout=subprocess.DEVNULL
    )
    shutil.copytree(data, to, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.db*"))
    seeding.some(data / "muniment.db", count, to / "muniment.db")


def _measure_loads(
    found: Measured,
    scale: Scale,
    data: Path,
    peers: Mapping[str, Path],
    traffic: Traffic,
    seeded: tuple[str, list[bytes]],
) -> None:
    cid, bodies = seeded
    new, wrong = signed_triggers([len(bodies)], cid)[0], forged(cid)
    answers = data / "answers.json"
    with ExitStack() as stack:
        servers = {"muniment": stack.enter_context(muniment(data))}
        with httpx2.Client(base_url=servers["muniment"].url) as client:
            wait_for_log(client, scale.triggers)
            given = check_answers(client, bodies, new, wrong)
        answers.write_text(json.dumps({name: _kept(answer) for name, answer in given.items()}), "utf-8")
        servers["bare"] = stack.enter_context(Server([sys.executable, str(HERE / "bare.py"), str(answers)]))
        _check_bare(servers["bare"].url, given)
        for name, database in peers.items():
            servers[name] = stack.enter_context(peer.start(name, database))
            check_peer(servers[name].url, given, bodies, new, wrong)
        found.loads = take_turns(servers, traffic, scale)
        found.wrk = wrk.take_turns(servers, scale, cid, bodies)


def check_peer(url: str, given: Mapping[str, httpx2.Response], seeded: list[bytes], new: bytes, wrong: bytes) -> None:
    """The peer reads the same bytes, refuses what is forged, and says the same but for the time of a creation."""
    with httpx2.Client(base_url=url) as client:
        for operation, same in check_answers(client, seeded, new, wrong).items():
            answer = given[operation]
            if operation.startswith("GET"):
                assert same.content == answer.content, operation
                assert [same.headers.get(name) for name in ("etag", "link")] == [
                    answer.headers.get(name) for name in ("etag", "link")
                ], operation
            else:
                assert {**same.json(), "createdAt": ""} == {**answer.json(), "createdAt": ""}


def _kept(answer: httpx2.Response) -> list[object]:
    headers = [pair for pair in answer.headers.multi_items() if pair[0] != "date"]  # the server adds its own
    return [headers, base64.b64encode(answer.content).decode()]


def _check_bare(url: str, given: Mapping[str, httpx2.Response]) -> None:
    """The ceiling sends the same status, headers and bytes."""
    for answer in given.values():
        request = answer.request
        same = httpx2.request(request.method, url + request.url.raw_path.decode(), content=request.content)
        assert same.content == answer.content
        assert {*same.headers.multi_items()} - {("date", same.headers["date"])} == {
            pair for pair in answer.headers.multi_items() if pair[0] != "date"
        }
