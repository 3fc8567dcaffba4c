"""A front of a registry that makes its log again from changed entries, and signs it: every tree of it is whole."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from followed_world import Site
from log_site import SECRET, SiteEpoch
from middle import Answered, Asked, Behaviour, Forward
from muniment.cli.main import main
from muniment.client import Registry
from muniment.protocol.log.entries import Fact, LogFact, parse_entry
from muniment.protocol.log.types import LogEpoch, LogShown
from muniment.protocol.wire import encode

NAME = "registry.example"
OWN_SECRET = b"\x99" * 32
Said = tuple[int, str]


def changed(fact: Fact, **members: object) -> Fact:
    """The fact with other values."""
    values = {name: getattr(fact, name) for name in fact.__struct_fields__}
    return type(fact)(**{**values, **members})


def entries_of(url: str) -> list[bytes]:
    """The entries of a log, as they are served."""
    with Registry(url) as registry:
        return [entry for bundle in registry.log.bundles() for entry in bundle]


def _not_found(code: str) -> Answered:
    problem = {"code": code, "detail": "it is not here", "retryAfter": 1}
    return Answered(404, {"content-type": "application/json"}, json.dumps(problem).encode())


@dataclass
class Front:
    """`entries` are those that it shows, and `answers` changes the JSON at a path; None: nothing is there.

    It signs under keys of its own, or with the `secret` of the log itself. Of two entries of a record it proves the one
    at the place `proved`.
    """

    site: Site
    entries: list[bytes]
    answers: dict[str, Callable[[Any], Any] | None] = field(default_factory=dict[str, Any])
    secret: bytes = OWN_SECRET
    at_s: int = field(default_factory=lambda: int(time.time()))
    proved: int = 0

    def find(self, kind: type[Fact], number: int = 0) -> tuple[int, Any]:
        """The index of an entry, of the first one of its kind or of a later one; and the fact."""
        facts = [(at, fact) for at, entry in enumerate(self.entries) if isinstance(fact := parse_entry(entry), kind)]
        return facts[number]

    def change(self, kind: type[Fact], number: int = 0, **members: object) -> None:
        """Give an entry other values."""
        at, fact = self.find(kind, number)
        self.entries[at] = changed(fact, **members).data

    def change_trigger(self, sig: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Show a trigger differently, by itself and in listings."""
        self.answers[f"/triggers/{sig}"] = change
        self.answers["/triggers"] = lambda listed: [change(each) if each["sig"] == sig else each for each in listed]

    def lack_trigger(self, sig: str) -> None:
        """Show no such trigger."""
        self.answers[f"/triggers/{sig}"] = self.answers[f"/triggers/{sig}/proof"] = None
        self.answers["/triggers"] = lambda listed: [each for each in listed if each["sig"] != sig]

    @cached_property
    def epoch(self) -> SiteEpoch:
        """The log. Its first entry names the keys that sign it."""
        epoch = SiteEpoch(1, self.entries, self.at_s, self.secret, name=NAME)
        first = parse_entry(self.entries[0])
        assert isinstance(first, LogFact)
        key, time_key = (each.verifier.text for each in epoch.keys)
        epoch.entries = [changed(first, key=key, time_key=time_key).data, *self.entries[1:]]
        return epoch

    @property
    def behave(self) -> Behaviour:
        """The behaviour of the proxy."""
        return self._answer

    def _answer(self, asked: Asked, forward: Forward) -> Answered:
        path = asked.target.partition("?")[0]
        if path in self.answers and self.answers[path] is None:
            return _not_found({"t": "trigger-not-found", "d": "deactivation-not-found"}[path[1]])
        if path.startswith("/log"):
            return self._logged(path)
        if found := re.fullmatch(r"/(\w+)s/(\w+)/proof", path):
            return self._proof(*found.groups())
        answer, change = forward(), self.answers.get(path)
        if change is None:
            return answer
        content = change(json.loads(answer.content)) if answer.status == 200 else change({})
        return Answered(200, {**answer.headers, "content-type": "application/json"}, json.dumps(content).encode())

    def _logged(self, path: str) -> Answered:
        if path == "/log":
            vkeys = [each.verifier.text for each in self.epoch.keys]
            shown = LogEpoch(
                origin=f"{NAME}/log/1", vkeys=vkeys, prefix="log/1", state="open", why=None, size=len(self.entries),
                merge_delay_seconds=600,
            )  # fmt: skip
            return Answered(200, {"content-type": "application/json"}, encode(LogShown(epochs=[shown])))
        if path.endswith("/checkpoint"):
            return Answered(200, {}, self.epoch.note().data)
        part = self.epoch.part(path.partition("/tile/")[2])
        return Answered(200, {}, part[0]) if part else _not_found("log-part-not-found")

    def _proof(self, kind: str, name: str) -> Answered:
        beginning = f"muniment/{kind}/v1\n{name}\n".encode()
        places = [at for at, entry in enumerate(self.epoch.entries) if entry.startswith(beginning)]
        if not places:
            return _not_found("not-logged-yet")
        return Answered(200, {}, self.epoch.proof(places[min(self.proved, len(places) - 1)]).data)


def run(*words: str | Path) -> Said:
    """A command: its status, and what it printed."""
    done = CliRunner().invoke(main, [str(each) for each in words])
    return done.exit_code, done.output


def seen_log(site: Site, entries: list[bytes], file: Path) -> Path:
    """The state of a reader who has seen these entries, signed by the log itself."""
    with site.middle.behaving(Front(site, entries, secret=SECRET).behave):
        assert run("tlog", "verify", site.middle.url, "--state", file)[0] == 0
    return file
