"""The relayer that `muniment demo` starts: it runs triggers of the demo's registry, and ends with the demo."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answers import ok
from demos import demo
from guest_functions import bundle
from muniment.client import Bundle, KeySigner, Registry, TriggerDraft

# These end a hang.
SECONDS_MAX = 120


def eventually(found: Callable[[], Any]) -> Any:
    """The first true result of `found`, which is asked again and again."""
    until = time.monotonic() + SECONDS_MAX
    while not (result := found()):
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.05)
    return result


def children(process: int) -> list[int]:
    """The children of a process."""
    try:
        return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def below(process: int) -> list[list[int]]:
    """The children of a process, their children, and so on: a list for each generation that there is."""
    found = [[process]]
    while generation := [child for each in found[-1] for child in children(each)]:
        found.append(generation)
    return found[1:]


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def check_run(url: str, sig: str) -> None:
    """Wait for a run of the trigger; it has an intent, which is recorded."""
    *_, run = eventually(lambda: ok(httpx2.get(f"{url}/executions", params={"triggerSig": sig})).json())
    assert (run["result"], run["status"]) == ("intents", "valid")
    (output,) = run["outputs"]
    intent = eventually(lambda: httpx2.get(f"{url}/intents/{output['hash']}").json().get("executionHash"))
    assert intent == run["hash"]


def sign(registry: Registry, cid: str, number: int, given: Mapping[str, Any]) -> str:
    """A trigger of this number, which is due now, and once."""
    config = {"type": 2, "startDate": 0, "delta": "1h", "endDate": 0}
    draft = TriggerDraft.of(cid, description=f"Once, number {number}", input=given, config=config)
    return registry.triggers.create(draft).sig


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads the processes from /proc")
def test_the_relayer_of_a_demo_runs_triggers_and_ends_with_it(tmp_path: Path) -> None:
    made = bundle("endless")
    with demo(tmp_path) as (process, url), Registry(url, signer=KeySigner((7).to_bytes(32))) as registry:
        (shown, *_) = registry.triggers.list(active=True)
        check_run(url, sign(registry, shown.function_cid, 0, shown.input))
        cid = registry.functions.deploy(Bundle(made.manifest, made.wasm)).cid
        for number in (1, 2, 3):  # each of their runs takes two seconds of CPU
            sign(registry, cid, number, {})
        # The demo's children are the service and the relayer; then comes what forks, and then who runs functions.
        tree = eventually(lambda: found if len(found := below(process.pid)) == 3 else None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0
        eventually(lambda: not any(is_alive(each) for generation in tree for each in generation))


@pytest.mark.long
def test_a_demo_ends_in_a_run_of_its_own_trigger(tmp_path: Path) -> None:
    with demo(tmp_path) as (process, url):
        (trigger, *_) = ok(httpx2.get(f"{url}/triggers?active=true")).json()
        check_run(url, trigger["sig"])
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does at Ctrl-C
        assert process.wait(SECONDS_MAX) == 0
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{url}/healthz")
