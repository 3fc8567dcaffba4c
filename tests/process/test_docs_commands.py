"""Each block of shell commands in the pages for users and operators is run as printed, or has its reason here."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from time import monotonic, sleep

import httpx2
import pytest
from msgspec import to_builtins

from answers import ok
from builders import Bundle, Wallet, cron
from intent_bodies import intent_body, operations_body
from muniment.client import KeySigner, Registry, TriggerDraft
from muniment.protocol.wire import encode_text
from run_bodies import next_run_of
from service import Service
from using import SAMPLE_INPUT

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(None in map(shutil.which, ("bash", "curl", "jq", "openssl")), reason="a program is missing"),
]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("use/*.md")), *sorted((ROOT / "docs").glob("run/*.md"))]
SAMPLE = ROOT / "src" / "muniment" / "cli" / "sample"
OWNER = Wallet(9)
SECONDS_MAX = 300.0  # ends a hang
NUMBERS = count(10)
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
RELEASE = f"make dist{' ' * 52}# or put the wheel of a release into dist/\n"
# Blocks that are not run, by their beginning, with who runs the commands or what they need.
NOT_RUN = {
    "make run": "these tests are started by `make test`; tests/process/test_demo_relayer.py runs the demo",
    "anvil --block-time 1": "foundry; tests/process/test_local_chain_walk.py has the chain and the relayer",
    "make setup": "the environment of these tests was made so; every test of a process starts `serve`",
    'curl -sS "$URL/ipfs/$CID?format=car"': "tests/e2e/test_ipfs_clients.py unpacks with the packages that it installs",
    "muniment login --url https://registry.example.org": "a registry that is no example; tests/client/test_profiles.py",
    "python -m pip install muniment": "tests/process/test_packaging.py installs the package",
    "python -m pip install 'muniment[relayer]'": "tests/process/test_packaging.py; the key is typed in",
    "cast wallet sign": "a hardware wallet",
    "cast send": "a chain and a hardware wallet",
    "muniment intents watch --chains chains.toml\n": "a chain; tests/process/test_watching.py",
    "muniment intents watch --chains chains.toml --from": "a chain; tests/process/test_watching.py",
    "muniment relayer --once": "tests/process/test_relayer.py, which has a relayer's settings",
    "muniment runs verify HASH": "a chain; tests/process/test_run_verified.py",
    "pip install 'muniment[keystore]'": "foundry; tests/client/test_wallets_outside.py",
    "muniment login --wallet rpc:": "a wallet that listens; tests/client/test_wallets_outside.py",
    "muniment login --wallet command:": "tests/client/test_wallets_outside.py",
    "muniment login --wallet browser": "a browser; tests/client/test_browser_handoff.py",
    "#!/bin/sh": "a hardware wallet; tests/client/test_wallets_outside.py",
    "jq --compact-output '{triggerSigs, signature}'": "a second registry; tests/api/test_triggers_deactivate.py",
    "muniment tlog status": "each for another case; tests/cli/test_tlog_commands.py",
    "muniment webhooks add": "a receiver on the Internet; tests/cli/test_webhooks_page.py",
    "curl https://registry.example.org/webhooks": "a receiver on the Internet; tests/e2e/test_webhook_receiver.py",
    "npm install assemblyscript": "tests/e2e/test_sample_functions.py compiles with the packages that it installs",
    "apt-get update": "tests/deploy/test_ten_steps.py",
    "make dist                                          #": "tests/deploy/test_ten_steps.py",
    "mkdir -p /etc/muniment": "tests/deploy/test_ten_steps.py",
    "openssl rand -hex 32 > /etc/muniment/secret": "a machine; test_several_services.py, tests/deploy/test_systemd.py",
    "cp deploy/systemd/": "tests/deploy/test_ten_steps.py",
    "curl --retry 10 --retry-connrefused": "tests/deploy/test_ten_steps.py",
    "sed 's/{$SITE}/": "tests/deploy/test_ten_steps.py",
    "systemctl start muniment-backup\nsystemctl enable": "tests/deploy/test_ten_steps.py",
    "/opt/muniment/bin/muniment restore": "tests/deploy/test_ten_steps.py",
    "muniment operators list\nmuniment doctor": "the service of tests/deploy/test_ten_steps.py, and records to import",
    "/opt/muniment/bin/pip install --require-hashes -r requirements-extras.lock": "tests/deploy/test_ten_steps.py",
    "systemctl start muniment-backup\nmake dist": "a release to come; tests/deploy/test_operators_day.py upgrades",
    f"{RELEASE}docker build": "tests/deploy/test_image.py builds with buildah",
    f"{RELEASE}cd deploy/compose": "Docker; tests/deploy/test_compose.py reads the file",
    "docker buildx imagetools inspect": "images of others",
    "docker compose exec postgres pg_dump": "Docker; tests/deploy/test_compose.py reads the file",
    "echo LOCK=requirements-extras.lock": "Docker; tests/deploy/test_compose.py reads the file",
    "cd deploy/compose\ndocker compose --file": "Docker; tests/deploy/test_compose.py reads the files",
    "kubectl create secret": "a cluster; tests/deploy/test_kustomize.py checks the objects",
    "kubectl exec": "a cluster; tests/deploy/test_kustomize.py checks the objects",
    "mkdir -p /etc/systemd/system/muniment.service.d": "a machine with systemd; the setting is that of any environment",
    "systemctl stop muniment": "a machine with S3; tests/deploy/test_litestream.py restores a replica",
    "apt install prometheus": "a machine; tests/deploy/test_prometheus.py runs Prometheus",
    "MUNIMENT_HOST=10.0.0.5": "settings; tests/deploy/test_scraping.py reaches /metrics",
    "pip install 'muniment[server,traces]'": "a collector; tests/process/test_traces.py",
    "muniment blocks pin": "an IPFS node; tests/cli/test_blocks_pin.py, tests/deploy/test_ipfs_node.py",
    "muniment doctor --data-dir /var/lib/muniment": "tests/deploy/test_ten_steps.py; tests/cli/test_doctor.py",
    "muniment backup /srv/backup": "two directories of one name; tests/process/test_backup_served.py",
}  # fmt: skip
# Commands that go on until Ctrl-C, and what they print by then.
ENDLESS = {
    "curl -i http://127.0.0.1:8787/events": "trigger.created",
    "curl -N": "trigger.deactivated",
    'eval "$(muniment completion bash)"': '"0x',
}


@dataclass(frozen=True)
class Block:
    """Shell commands between two fences of a page."""

    page: Path
    script: str

    @property
    def name(self) -> str:
        return f"{self.page.stem}: {self.script.partition(chr(10))[0][:40]}"

    def entry(self, table: dict[str, str]) -> str | None:
        """What a table says of the block."""
        return next((said for start, said in table.items() if self.script.startswith(start)), None)


def blocks() -> list[Block]:
    """Every block but the walks, which tests/contract/test_walkthrough.py runs."""
    found = re.compile(r"(<!-- walk -->\n)?^( *)```sh\n(.*?)^\2```", re.DOTALL | re.MULTILINE)
    return [
        Block(page, textwrap.dedent(script))
        for page in PAGES
        for walk, _, script in found.findall(page.read_text("utf-8"))
        if not walk
    ]  # fmt: skip


BLOCKS = blocks()
FOR_OPERATORS, FOR_USERS = (
    [each for each in BLOCKS if (each.page.parent.name == "run") is for_operators and each.entry(NOT_RUN) is None]
    for for_operators in (True, False)
)


@dataclass(frozen=True)
class Reader:
    """Somebody who has the pages, a directory, and a registry that holds what the commands name."""

    service: Service
    directory: Path
    names: dict[str, str]
    data_dir: Path | None = None  # of a registry that is not served; None for that of the service

    def script(self, block: Block) -> str:
        """The block with the addresses and signatures of this registry in place of the examples."""
        script = block.script.replace("http://127.0.0.1:8787", self.service.url)
        script = re.sub(r"https://registry\.example(?=[/ ])", self.service.url, script)
        script = script.replace("deactivations/0x…", f"deactivations/{self.names['ENDED']}")
        script = script.replace("0x… 0x…", f"{self.names['SIG']} {self.names['OTHER']}").replace(
            "0x…", self.names["SIG"]
        )
        script = script.replace("0x9f…", self.names["HOLDER"]).replace("/srv/", f"{self.directory}/")
        script = script.replace("postgresql://muniment@db/muniment", self.names.get("DATABASE", ""))
        return re.sub(r"\bHASH$|\bHASH(?= )", self.names["RUN"], script, flags=re.MULTILINE)

    def environment(self) -> dict[str, str]:
        return {
            **PLAIN, **self.names, "URL": self.service.url, "MUNIMENT_URL": self.service.url,
            "MUNIMENT_DATA_DIR": str(self.data_dir or self.service.data_dir), "MUNIMENT_TLOG_NAME": "registry.example",
            "MUNIMENT_PRIVATE_KEY_FILE": str(self.directory / "owner.key"),
            "HOME": str(self.directory), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }  # fmt: skip

    def run(self, block: Block) -> None:
        """Run the commands to their end; each must succeed."""
        with self._started(block) as process:
            try:
                said, _ = process.communicate(timeout=SECONDS_MAX)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, f"{block.page.name}: {block.script}\n{said}"

    def follow(self, block: Block, expected: str) -> None:
        """Run until the commands have printed `expected` of what happens meanwhile, then end them."""
        printed = self.directory / "printed"
        with printed.open("w") as file, self._started(block, stdout=file.fileno()) as process:
            try:
                deadline = monotonic() + SECONDS_MAX
                while expected not in printed.read_text():
                    assert monotonic() < deadline, f"{block.page.name}: {block.script}"
                    self._write(next(NUMBERS))
            finally:
                os.killpg(process.pid, signal.SIGKILL)

    def _write(self, number: int) -> None:
        """A trigger that is created and deactivated, and an intent."""
        with Registry(self.service.url, signer=KeySigner(OWNER.key), operator_key=self.names["KEY"]) as registry:
            sig = registry.triggers.create(_draft(self.names["FUNCTION"], number)).sig
            registry.triggers.deactivate([sig])
            registry.intents.put(intent_body(number))

    def _started(self, block: Block, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", self.script(block)], cwd=self.directory, env=self.environment(),
            text=True, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def _draft(cid: str, number: int) -> TriggerDraft:
    """A trigger that is due every minute; each number makes another."""
    config = cron(schedule="* * * * *")
    return TriggerDraft.of(cid, config=config, input=SAMPLE_INPUT, version=f"{number}.0.0")


def _names(service: Service, bundle: Path) -> dict[str, str]:
    """What the commands name, recorded at the registry: a function, triggers, an intent and a run."""
    key = service.operator_key()
    with Registry(service.url, signer=KeySigner(OWNER.key), operator_key=key) as registry:
        cid = registry.functions.deploy(bundle).cid
        due, other, ended = (registry.triggers.create(_draft(cid, number)) for number in (1, 2, 3))
        registry.triggers.deactivate([ended.sig])
        consent = registry.triggers.get(ended.sig).deactivate_sig
        limited = registry.functions.deploy(_limited(bundle.parent)).cid
        draft = TriggerDraft.of(limited, config=cron(), input={"chainId": 8453, "limit": 5}, version="2.0.0")
        (bundle.parent / "draft.json").write_text(json.dumps(to_builtins(draft, enc_hook=encode_text)))
        run = registry.runs.record(next_run_of(ok(httpx2.get(f"{service.url}/triggers/{due.sig}")).json()))
        holder = registry.intents.put(operations_body(1, triggerSig=due.sig)).hash
        hash_ = registry.intents.put(intent_body(1, configSig=due.sig)).hash
    _wait_for_proofs(service, f"triggers/{due.sig}", f"deactivations/{consent}")
    etag = ok(httpx2.get(f"{service.url}/intents/{hash_}")).headers["etag"]
    return {
        "CID": str(limited), "SIG": str(due.sig), "OTHER": str(other.sig), "ENDED": str(consent), "RUN": str(run.hash),
        "HASH": str(hash_), "ETAG": etag, "HOLDER": str(holder), "KEY": key, "FUNCTION": str(cid),
    }  # fmt: skip


def _muniment(*words: str | Path) -> None:
    command = [Path(sys.executable).with_name("muniment"), *words]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS_MAX, env=PLAIN)


def _wait_for_proofs(service: Service, *paths: str) -> None:
    """Wait until the transparency log has these records: it takes up what is new a moment later."""
    deadline = monotonic() + SECONDS_MAX
    while any(httpx2.get(f"{service.url}/{path}/proof").status_code != 200 for path in paths):
        assert monotonic() < deadline
        sleep(0.05)


def _limited(folder: Path) -> Path:
    """A bundle with the inputs that the page on the command line gives to its function."""
    bundle = Bundle(inputs={"chainId": "uint32", "limit": "uint256"})
    (folder / "limited").mkdir()
    (folder / "limited" / "manifest.json").write_bytes(bundle.manifest)
    (folder / "limited" / "function.wasm").write_bytes(bundle.wasm)
    return folder / "limited"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(SAMPLE, folder / "home" / "build")
    (folder / "home" / "owner.key").write_text(OWNER.key.hex())
    with Service(folder / "data", environment={"MUNIMENT_TLOG_NAME": "registry.example"}) as service:
        names = _names(service, folder / "home" / "build")
        _muniment("backup", folder / "home" / "backup", "--data-dir", service.data_dir)
        yield Reader(service, folder / "home", names)


@pytest.fixture
def reader(served: Reader, tmp_path: Path) -> Reader:
    """The reader in a directory without the files that other commands made."""
    return replace(served, directory=shutil.copytree(served.directory, tmp_path / "home"))


@pytest.fixture
def operator(reader: Reader, postgres_url: str) -> Reader:
    """An operator who has stopped the service, a backup, and a migrated database without rows on PostgreSQL."""
    _muniment("restore", reader.directory / "backup", "--data-dir", reader.directory / "data", "--no-rotate")
    return replace(reader, names={**reader.names, "DATABASE": postgres_url}, data_dir=reader.directory / "data")


@pytest.mark.parametrize("block", FOR_OPERATORS, ids=[each.name for each in FOR_OPERATORS])
def test_the_commands_of_a_page_for_operators_do_what_they_say(operator: Reader, block: Block) -> None:
    operator.run(block)


@pytest.mark.parametrize("block", FOR_USERS, ids=[each.name for each in FOR_USERS])
def test_the_commands_of_a_page_do_what_they_say(reader: Reader, block: Block) -> None:
    if expected := block.entry(ENDLESS):
        reader.follow(block, expected)
    else:
        reader.run(block)


def test_the_program_that_follows_the_log_prints_its_entries(served: Reader) -> None:
    page = (ROOT / "docs" / "use" / "transparency-log.md").read_text("utf-8")
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    program = program.replace("https://registry.example", served.service.url)
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=SECONDS_MAX, env=PLAIN
    )
    assert done.returncode == 0, done.stderr
    assert served.names["SIG"] in done.stdout


def test_every_block_that_is_not_run_is_on_a_page() -> None:
    assert {
        start for start in {**NOT_RUN, **ENDLESS} if not any(each.script.startswith(start) for each in BLOCKS)
    } == set()


def test_a_reason_is_for_one_block() -> None:
    starts = [start for start in NOT_RUN if sum(each.script.startswith(start) for each in BLOCKS) > 1]
    assert starts == []


def test_every_block_that_is_not_run_names_files_that_exist() -> None:
    named = [path for said in NOT_RUN.values() for path in re.findall(r"tests/[\w/]+\.py", said)]
    assert [path for path in named if not (ROOT / path).is_file()] == []
