"""The walk of docs/use/run-functions.md: an event of a local chain, and the run that the relayer of a demo records."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chain import CHAIN_TESTS, LocalChain
from demos import demo

pytestmark = [
    *CHAIN_TESTS, pytest.mark.long, pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed"),
]  # fmt: skip

PAGE = Path(__file__).parents[2] / "docs" / "use" / "run-functions.md"
# In place of foundry's `cast send --rpc-url URL --unlocked --from ADDRESS --json [--create CODE] [TO]`.
CAST = f"""#!{sys.executable}
import sys, time
import httpx2
_, command, _, url, unlocked, _, sender, as_json, *given = sys.argv
assert (command, unlocked, as_json) == ("send", "--unlocked", "--json")
def ask(method, *params):
    answer = httpx2.post(url, json={{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}}, trust_env=False)
    return answer.json()["result"]
target = {{"data": given[1]}} if given[0] == "--create" else {{"to": given[0]}}
sent = ask("eth_sendTransaction", {{"from": sender}} | target)
while (receipt := ask("eth_getTransactionReceipt", sent)) is None:
    time.sleep(0.1)
assert receipt["status"] == "0x1"
print('{{"contractAddress": "%s"}}' % receipt["contractAddress"])
"""


def test_the_walk_with_a_local_chain_ends_in_a_run_for_its_event(tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8")
    walk = re.search(r"<!-- walk -->\n```sh\n(.*?)```", page, re.DOTALL)
    chains = re.search(r"<<'END'\n(.*?)END\n", page, re.DOTALL)
    assert walk is not None
    assert chains is not None
    (tmp_path / "cast").write_text(CAST)
    (tmp_path / "cast").chmod(0o755)
    local = tmp_path / "local.toml"
    with LocalChain(31337) as chain:
        chain.ask("evm_setIntervalMining", 1)
        local.write_text(chains[1].replace("http://127.0.0.1:8545", chain.url))
        with demo(tmp_path, "--chains", str(local), MUNIMENT_ALLOW_PRIVATE_NETWORKS="true") as (_, url):
            script = walk[1].replace("http://127.0.0.1:8787", url).replace("http://127.0.0.1:8545", chain.url)
            path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
            walked = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, env={**os.environ, "PATH": path}, text=True,
                capture_output=True, timeout=300, check=False,
            )  # fmt: skip
    assert walked.returncode == 0, walked.stderr
    run, *_ = map(json.loads, walked.stdout.splitlines())
    assert (run["triggerType"], run["result"]) == (1, "intents")
