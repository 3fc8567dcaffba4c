"""A registry as a process, with relayers of it as processes: their files, and the triggers and runs of owners."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2

import warm
from builders import TriggerDraft, Wallet, event, once
from guest_functions import INPUTS, bundle
from muniment.client import Bundle, KeySigner, Registry
from ports import free_port
from service import Service

GIVEN: dict[str, Any] = {
    "chainId": 8453, "token": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "amount": "1000000",
    "recipient": "0x1111111111111111111111111111111111111111", "fee": "10000",
}  # fmt: skip
# These end a hang.
SECONDS_MAX = 120


@dataclass
class Site:
    """A registry, the files of relayers, and the CID of a function that transfers."""

    service: Service
    directory: Path
    cid: str
    http: httpx2.Client
    # The nodes of each chain.
    nodes: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    # Whether relayers have the limits of users, in place of those of tests (see `patience.py`).
    is_timed: bool = False
    _cids: dict[str, str] = field(default_factory=dict[str, str])
    _ports: dict[str, int] = field(default_factory=dict[str, int])

    def config(self, name: str, **more: str) -> Path:
        """The file of a relayer with a key of its own."""
        path = self.directory / f"{name}.toml"
        if not path.exists():
            key = self.directory / f"{name}.key"
            key.touch(0o600)
            key.write_text(self.service.run("operators", "add", name))
            lines: dict[str, Any] = {
                "registry": self.service.url, "operator_key_file": f"{name}.key", "state": f"{name}.db", **more,
            }  # fmt: skip
            if self.nodes:
                lines |= {"chains_file": "chains.toml", **self._watched(name)}
            path.write_text("[relayer]\n" + "".join(f"{each} = {json.dumps(lines[each])}\n" for each in lines))
        return path

    def _watched(self, name: str) -> dict[str, Any]:
        self._ports[name] = port = free_port()
        return {"health": f"127.0.0.1:{port}"} if _has_health() else {"health_port": port}

    def words(self, name: str, *words: str) -> list[str]:
        return ["relayer", "--config", str(self.config(name)), "--any", *words]

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return warm.run(*self.words(name, *words), timeout=SECONDS_MAX)

    def start(self, name: str, *words: str) -> warm.WarmProcess | subprocess.Popen[bytes]:
        with (self.directory / f"{name}.log").open("ab") as log:
            if self.is_timed:
                clean = {each: value for each, value in os.environ.items() if not each.startswith("MUNIMENT_")}
                command = [sys.executable, "-m", "muniment", *self.words(name, *words)]
                return subprocess.Popen(command, env=clean, stdout=log, stderr=log)
            return warm.popen(self.words(name, *words), os.environ, stdout=log.fileno(), stderr=log.fileno())

    @contextmanager
    def relaying(self, name: str = "relayer") -> Generator[warm.WarmProcess | subprocess.Popen[bytes]]:
        """A relayer that follows the registry, and is stopped in the end."""
        process = self.start(name)
        try:
            self.wait_until(
                lambda: "following" in self.log(name) and process.poll() is None, "the relayer does not start"
            )
            yield process
        finally:
            process.terminate()
            process.wait(SECONDS_MAX)

    def log(self, name: str = "relayer") -> str:
        return (self.directory / f"{name}.log").read_text()

    def metrics(self, name: str = "relayer") -> str:
        return self.http.get(f"http://127.0.0.1:{self._ports[name]}/metrics").text

    def names(self, cause: str, name: str = "relayer") -> str:
        """What the log or a metric that is not 0 says of a cause, a regular expression; empty if nothing does."""
        figures = [line for line in self.metrics(name).splitlines() if line[0] != "#" and line.split()[-1] != "0"]
        lines = [*self.log(name).splitlines(), *figures]
        return next((line for line in lines if re.search(cause, line)), "")

    def wait_until(self, holds: Callable[[], object], what: str, seconds: float = SECONDS_MAX) -> None:
        until = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < until, f"{what}\n{self._ends_of_logs()}"
            time.sleep(0.1)

    def _ends_of_logs(self) -> str:
        return "\n".join(line for each in self.directory.glob("*.log") for line in each.read_text().splitlines()[-20:])

    def sign(self, number: int = 1, **members: Any) -> str:
        """A trigger that is due now, and once."""
        given: dict[str, Any] = {
            "config": once(startDate=0, delta="1h"), "wallet": Wallet(number), "inputs": INPUTS["transfer"],
            "input": GIVEN, **members,
        }  # fmt: skip
        given.setdefault("cid", self.cid)
        return self.post(TriggerDraft(**given).signed())

    def sign_event(
        self, contract: str, topics: list[list[str]], *, number: int = 1, does: str = "transfer", chain: int = 31_337,
        **given: Any,
    ) -> str:  # fmt: skip
        """A trigger of events of a chain, whose function is the sample with the name `does`."""
        inputs = INPUTS[does]
        config = event(chainId=chain, contract=contract, topics=topics, delta="1h")
        version = f"{len(self._cids)}.{time.monotonic_ns()}.0"
        values = {name: value for name, value in {**GIVEN, **given}.items() if name in inputs}
        return self.sign(number, cid=self.function(does), config=config, version=version, inputs=inputs, input=values)

    def function(self, name: str) -> str:
        """The CID of a sample function."""
        if name not in self._cids:
            made = bundle(name, "B")
            with Registry(self.service.url, signer=KeySigner((7).to_bytes(32))) as registry:
                self._cids[name] = str(registry.functions.deploy(Bundle(made.manifest, made.wasm)).cid)
        return self._cids[name]

    def post(self, body: dict[str, Any]) -> str:
        answer = self.http.post(f"{self.service.url}/triggers", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["sig"]

    def all(self, path: str, **parameters: Any) -> list[dict[str, Any]]:
        """All records of a listing, each once: newer ones move those of the next page."""
        found, count = dict[str, dict[str, Any]](), 0
        while page := self.get(path, limit=100, offset=count, **parameters):
            found |= {each["hash"]: each for each in page}
            count += len(page)
        return list(found.values())

    def runs(self, sig: str) -> list[dict[str, Any]]:
        """The runs of a trigger that are no notes."""
        return [each for each in self.all("/executions", triggerSig=sig) if each["result"] in VERDICTS]

    def get(self, path: str, **parameters: Any) -> Any:
        answer = self.http.get(f"{self.service.url}{path}", params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()


VERDICTS = {"intents", "nothing", "stopped"}


def recorded_s(run: dict[str, Any]) -> float:
    """When the registry got a run, in seconds since 1970."""
    return datetime.fromisoformat(run["createdAt"]).timestamp()


@contextmanager
def new_site(directory: Path, nodes: dict[int, list[str]] | None = None) -> Generator[Site]:
    """A registry, and the files of relayers with these nodes."""
    environment: dict[str, str] = {}
    if nodes:
        (directory / "chains.toml").write_text("".join(map(_chain, nodes, nodes.values())))
        environment = {
            "MUNIMENT_CHAINS_FILE": str(directory / "chains.toml"),
            "MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true",
        }
    with (
        Service(directory / "data", environment=environment) as service,
        httpx2.Client(verify=False, timeout=60) as http,
    ):
        made = Site(service, directory, "", http, nodes or {})
        made.cid = made.function("transfer")
        yield made


def _has_health() -> bool:
    from muniment.relayer.settings import RelayerSettings  # noqa: PLC0415 - only here

    return "health" in RelayerSettings.__dataclass_fields__


def _chain(chain_id: int, urls: list[str]) -> str:
    listed = json.dumps(urls)
    return f'[[chains]]\nid = {chain_id}\nname = "Made"\nrpc_urls = {listed}\nconfirmations = 0\n'
