"""Every command that uses a service, against a real one."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import jwt
import pytest
from click.testing import CliRunner

import warm
from builders import Wallet
from muniment.cli.client.when import end_ms
from muniment.cli.main import main
from muniment.client import Registry, SignedTrigger, TriggerDraft
from muniment.protocol.forms import decode_record
from service import Service
from using import SAMPLE, SAMPLE_INPUT, Person, draft, intent, operator_key, proposal


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("served") / "data") as service:
        yield service


@pytest.fixture(scope="module")
def key(served: Service) -> str:
    return operator_key(served)


# Each test has a wallet of its own: a wallet logs in eight times in five minutes at most.
NUMBERS = count(1_000)
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"  # as every ERC-20 token logs it


@pytest.fixture
def person(served: Service, tmp_path: Path) -> Person:
    return Person(served, tmp_path / "home", Wallet(next(NUMBERS)))


def test_a_function_is_deployed_shown_and_downloaded(person: Person, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    assert json.loads((tmp_path / "build/CID.json").read_text()) == {"CID": cid}
    assert cid in [each["CID"] for each in person.records("functions", "list", "--creator", person.wallet.address)]
    assert cid in [each["CID"] for each in person.records("functions", "list", "--name", "TRANS")]
    assert person.records("functions", "list", "--name", "other") == []
    assert person.json("functions", "show", cid)["name"] == "Transfer"
    assert person.json("functions", "show", f"{cid[:14]}…")["CID"] == cid
    assert "amount: uint256" in person.done("functions", "show", cid, "--columns")
    person.done("functions", "download", cid, tmp_path / "copy")
    assert (tmp_path / "copy/function.wasm").read_bytes() == (SAMPLE / "function.wasm").read_bytes()
    again = person.run("functions", "download", cid, tmp_path / "copy")
    assert again.exit_code == 2  # it writes into no directory that is there
    assert sorted(each.name for each in tmp_path.iterdir()) == ["build", "copy", "home"]


def test_a_trigger_is_previewed_created_listed_and_ended(person: Person, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    options = draft(cid, "3.0.0")
    summary = person.json("triggers", "preview", *options)["summary"]
    assert "may run in your name" in summary[0]
    assert "Its input amount is 1 USDC (1000000) on Base." in summary
    trigger = person.json("triggers", "create", *options)
    assert (trigger["signer"], trigger["input"]) == (person.wallet.address, SAMPLE_INPUT)
    sig = trigger["sig"]
    assert person.json("triggers", "show", sig) == trigger
    mine = ["triggers", "list", "--signer", person.wallet.address, "--function", cid]
    assert sig in [each["sig"] for each in person.records(*mine, "--active")]
    shown = person.done(*mine, "--active", "--columns")
    assert f"{sig[:10]}…" in shown
    assert sig not in shown
    assert "Transfer" in shown
    assert "every 6 hours" in shown
    assert "1 USDC (1000000) on Base" in shown
    assert "amounts      1 USDC (1000000) on Base" in person.done("triggers", "show", sig, "--columns")
    assert person.json("triggers", "show", f"{sig[:10]}…") == trigger
    assert sig in person.done(*mine, "--columns", "--whole")
    second = person.json("triggers", "create", *draft(cid, "3.0.1"), "--fee-limit", "50000000000000000")["sig"]
    assert "0.05 US dollars (50000000000000000)" in person.done("triggers", "show", second, "--columns")
    assert [each["sig"] for each in person.records(*mine)] == [second, sig]
    assert [each["sig"] for each in person.records(*mine, "--limit", "1")] == [second]
    ended = person.run("triggers", "deactivate", sig[:10])
    assert (ended.exit_code, f"{sig[:10]} is {sig}" in ended.stderr) == (0, True), ended.output
    kept = json.loads(ended.stdout)
    assert (kept["triggerSigs"], kept["signer"]) == ([sig], person.wallet.address)
    assert json.loads(person.done("triggers", "deactivate", sig)) == kept
    person.done("triggers", "deactivate", sig, second)
    assert json.loads(person.done("triggers", "deactivate", second))["triggerSigs"] == [sig, second]
    assert [each["sig"] for each in person.records(*mine, "--ended", "--all")] == [second, sig]
    assert person.json("triggers", "show", sig)["deactivateSig"] == kept["signature"]
    shown = person.done("triggers", "show", sig, "--columns")
    assert "deactivated (as the service says)" in shown
    assert f"deactivation  {kept['signature']} (as the service says)" in shown
    assert "every 6 hours" in shown


def test_a_run_costs_at_most_a_dollar_unless_another_limit_is_given(person: Person, tmp_path: Path) -> None:
    cid, path = person.deployed(tmp_path / "build"), tmp_path / "draft.json"
    cron = {"type": 0, "schedule": "* * * * *", "delta": "1m", "endDate": 0}
    members = {"functionCid": cid, "version": "4.0.0", "config": cron, "input": SAMPLE_INPUT, "description": "a file"}
    path.write_text(json.dumps(members))
    dollar, of_one = str(10**18), "with a fee of at most 1 US dollar (1000000000000000000)"
    for options, limit, said in (
        (draft(cid, "4.0.1"), dollar, of_one),
        ([path], dollar, of_one),
        ([*draft(cid, "4.0.2"), "--fee-limit", "none"], "0", "without a limit on the fee of a run"),
        ([*draft(cid, "4.0.3"), "--fee-limit", "0"], "0", "without a limit on the fee of a run"),
        ([*draft(cid, "4.0.4"), "--fee-limit", "500000000000000000"], dollar.replace("1", "5")[:-1], "0.5 US dollars"),
    ):
        assert said in person.done("triggers", "preview", *options)
        for command in ("sign", "create"):
            done = person.run("triggers", command, *options)
            assert said in " ".join(done.stderr.split())
            values = json.loads(done.stdout)
            assert values.get("typedData", {}).get("values", values)["executionFeeLimit"] == limit
    with Registry(person.service.url) as registry:
        by_client = TriggerDraft.of(cid, config=cron, input=SAMPLE_INPUT)
        assert of_one in " ".join(registry.triggers.preview(by_client).summary)


def test_a_consent_that_is_registered_already_is_said_to_be(person: Person, tmp_path: Path) -> None:
    cid, path = person.deployed(tmp_path / "build"), tmp_path / "signed.json"
    path.write_text(person.done("triggers", "sign", *draft(cid, "8.0.0")))
    first, second, third = (
        person.run("triggers", "create", *options)
        for options in (
            [*draft(cid, "8.0.0"), "--description", "first"], [*draft(cid, "8.0.0"), "--description", "second"], [path],
        )
    )  # fmt: skip
    assert first.exit_code == second.exit_code == third.exit_code == 0
    assert first.stdout == second.stdout == third.stdout
    said = f"already registered on {json.loads(first.stdout)['createdAt']}; use --version for another"
    assert [said in each.stderr for each in (first, second, third)] == [False, True, True]
    with Registry(person.service.url) as registry:
        repeated: list[str] = []
        signed = decode_record(json.loads(path.read_text()), SignedTrigger)
        again = registry.triggers.create(signed, on_repeated=lambda trigger: repeated.append(trigger.sig))
        assert repeated == [again.sig]


def test_a_trigger_for_one_run_begins_at_once(person: Person, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    options = [option for option in draft(cid, "6.0.0") if option not in {"--schedule", "0 */6 * * *"}]
    assert "once, as soon as possible" in person.json("triggers", "preview", *options, "--once")["summary"][0]
    assert person.json("triggers", "create", *options, "--once", "--yes")["config"]["startDate"] == 0


def test_an_event_is_named_where_it_is_signed(person: Person, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    options = [option for option in draft(cid, "5.0.0") if option not in {"--schedule", "0 */6 * * *"}]
    topic = "0x48257dc961b6f792c2b78a080dacfed693b660960a702de21cee364e20270e2f"
    for named, said in {
        "Ping(uint256)": f"Topic 0, {topic}, is the hash of the event Ping(uint256).",
        "Transfer(address,address,uint256)": f"among {TRANSFER} (the event Transfer(address,address,uint256))",
    }.items():
        event = ["--on-event", f"8453:{person.wallet.address}:{named}"]
        shown = person.done("triggers", "preview", *options, *event, "--columns")
        asked = person.run("triggers", "create", *options, *event, "--yes").stderr
        for text in (shown, asked):
            assert said in " ".join(text.split())
            assert ("is the hash of" in text) is (named == "Ping(uint256)")


@pytest.mark.parametrize("command", ["preview", "sign", "create"])
def test_a_chain_that_the_registry_lacks_is_refused_before_a_wallet_is_asked(
    person: Person, tmp_path: Path, command: str
) -> None:
    cid = person.deployed(tmp_path / "build")
    options = [option for option in draft(cid, "7.0.0") if option not in {"--schedule", "0 */6 * * *"}]
    event = ["--on-event", f"424242:{person.wallet.address}:Transfer(address,address,uint256)"]
    wallet, asked = tmp_path / "wallet.py", tmp_path / "asked"
    wallet.write_text(
        "import json, pathlib, sys\n"
        "is_signature = json.load(sys.stdin)['method'] != 'address'\n"
        f"print(pathlib.Path('{asked}').touch() if is_signature else '{person.wallet.address}')"
    )
    person.environment |= {
        "MUNIMENT_PRIVATE_KEY_FILE": None, "MUNIMENT_WALLET": f"command:{sys.executable} {wallet}",
    }  # fmt: skip
    refused = person.run("triggers", command, *options, *event, *(["--yes"] if command != "preview" else []))
    assert (refused.exit_code, asked.exists()) == (1, False), refused.output
    assert "chain 424242 is not configured here" in refused.stderr
    assert person.records("triggers", "list", "--signer", person.wallet.address) == []


def test_a_trigger_is_signed_here_and_registered_without_a_key(person: Person, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    signed = person.done("triggers", "sign", *draft(cid, "4.0.0"))
    registered = person.json("triggers", "create", "-", stdin=signed, MUNIMENT_PRIVATE_KEY_FILE=None)
    assert registered["sig"] == json.loads(signed)["sig"]
    (tmp_path / "draft.json").write_text(json.dumps({
        "functionCid": cid, "version": "4.0.1", "input": {**SAMPLE_INPUT, "chainId": 1}, "description": "from a file",
        "config": {"type": 0, "schedule": "0 0 * * *", "delta": "10m", "endDate": 0},
    }))  # fmt: skip
    assert person.json("triggers", "create", tmp_path / "draft.json")["description"] == "from a file"


def test_intents_are_written_and_read(person: Person, key: str) -> None:
    person.environment["MUNIMENT_OPERATOR_KEY"] = key
    recorded = person.json("intents", "put", "-", stdin=json.dumps(intent(1)))
    hash_ = recorded["hash"]
    person.done("intents", "log", hash_, "began \u202e", "--level", "warning")
    offered = person.json("intents", "propose", hash_, "-", stdin=json.dumps(proposal()))
    assert person.json("intents", "move", hash_, "enqueued")["status"] == "enqueued"
    shown = person.done("intents", "show", hash_[:12], "--columns")
    assert "warning: began \\u202e" in shown
    assert f"{offered['hash']} by" in shown
    assert "enqueued (as the service says)" in shown
    assert ["asks", "for", "Transfer", "(not", "readable", "here)"] in [line.split() for line in shown.splitlines()]
    assert ["operation", "Transfer"] in [line.split() for line in shown.splitlines()]
    assert "Transfer" in person.done("intents", "list", "--columns")
    mine = ["intents", "list", "--user", intent(1)["user"].lower(), "--settler", intent(1)["settler"]]
    assert hash_ in [each["hash"] for each in person.records(*mine, "--status", "enqueued")]
    assert person.records(*mine, "--trigger", intent(1)["configSig"], "--status", "succeeded") == []


def test_a_mirror_grows_and_can_be_recorded_elsewhere(person: Person, key: str, tmp_path: Path) -> None:
    person.environment["MUNIMENT_OPERATOR_KEY"] = key
    for number in range(10, 13):
        person.done("intents", "put", "-", stdin=json.dumps(intent(number)))
    person.done("intents", "put", "-", stdin=json.dumps(intent(13, deadline=1_600_000_000)))  # it has expired
    hash_ = person.json("intents", "put", "-", stdin=json.dumps(intent(14)))["hash"]
    for number in range(60):  # a listing has fifty of them
        person.done("intents", "log", hash_, f"line {number}")
    file = tmp_path / "mirror.ndjson"
    person.done("intents", "download", file)
    count = len(file.read_text().splitlines())
    with file.open("a") as half:
        half.write('{"half of a line that a crash has left')
    newest = person.json("intents", "put", "-", stdin=json.dumps(intent(15)))["hash"]
    assert [each["hash"] for each in person.records("intents", "list", "--limit", "1")] == [newest]
    person.done("intents", "download", file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == count + 1
    assert len({each["hash"] for each in lines}) == len(lines)
    assert len(next(each for each in lines if each["hash"] == hash_)["logs"]) == 60
    with Service(tmp_path / "other") as other, Registry(other.url, operator_key=other.operator_key()) as registry:
        for line in lines:
            registry.intents.put(line)
        assert [each.hash for each in registry.intents.list()] == [each["hash"] for each in lines]


def settled(path: Path, before: bytes = b"") -> bytes:
    """The position of a follower, other than `before`, after it has stored every printed page."""
    kept = b""
    while kept in {b"", before} or path.read_bytes() != kept:
        kept = path.read_bytes() if path.exists() else b""
        time.sleep(0.3)
    return kept


def test_following_goes_on_where_it_was_and_ends_with_a_signal(person: Person, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    first = person.json("triggers", "create", *draft(cid, "5.0.0"))["sig"]
    command = ["triggers", "follow", "--signer", person.wallet.address, "--state", str(tmp_path / "position")]
    given = {**os.environ, **person.environment, "PYTHONPATH": str(warm.UNHURRIED)}
    environment = {name: value for name, value in given.items() if value is not None}
    seen: list[str] = []
    for version in ("5.0.1", "5.0.2"):
        process = warm.popen(command, environment)
        try:
            assert process.stdout is not None
            while first not in seen:
                seen.append(json.loads(process.stdout.readline())["sig"])
            kept = settled(tmp_path / "position")
            expected = person.json("triggers", "create", *draft(cid, version))["sig"]
            while expected not in seen:
                seen.append(json.loads(process.stdout.readline())["sig"])
            settled(tmp_path / "position", kept)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 128 + signal.SIGINT
    assert len(set(seen)) == len(seen)


def test_with_a_key_in_the_environment_a_login_stores_no_credential(person: Person) -> None:
    person.done("login", "--profile", "mine")
    assert not (person.home / "config/muniment/credentials.json").exists()
    (profile,) = person.records("profiles")
    assert profile["address"] == person.wallet.address
    assert person.json("whoami", "--profile", "mine")["address"] == person.wallet.address


def test_stored_credentials_work_without_the_wallet_and_go_at_logout(person: Person, tmp_path: Path) -> None:
    api_key = person.done("api-key").strip()
    # A wallet outside: a command that signs. Here it is this package.
    wallet = tmp_path / "wallet.py"
    wallet.write_text(
        "import json, sys\n"
        "from muniment.client import KeySigner\n"
        f"signer = KeySigner(bytes.fromhex('{person.wallet.key.hex()}'))\n"
        "asked = json.load(sys.stdin)\n"
        "print(signer.address if asked['method'] == 'address' else"
        " signer.sign_text(asked['text']) if asked['method'] == 'text' else signer.sign_typed_data(asked['data']))\n"
    )
    has_key = {"MUNIMENT_PRIVATE_KEY_FILE": person.environment.pop("MUNIMENT_PRIVATE_KEY_FILE")}
    person.environment["MUNIMENT_PRIVATE_KEY_FILE"] = None
    person.done("login", "--profile", "ledger", "--wallet", f"command:{sys.executable} {wallet}", "--lifetime", "600")
    file = person.home / "config/muniment/credentials.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    (stored,) = json.loads(file.read_text()).values()
    claims = jwt.decode(stored["token"], options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 600
    wallet.unlink()
    assert person.done("api-key", "--profile", "ledger").strip() == api_key
    assert person.records("balances", "--profile", "ledger") == []
    assert "apiKey and token in" in person.json("whoami", "--profile", "ledger")["credentials"]
    # A profile that is named in the command comes before the variable, and the option before both.
    person.environment["MUNIMENT_WALLET"] = "browser"
    assert person.json("whoami", "--profile", "ledger")["wallet"] == f"command:{sys.executable} {wallet}"
    assert person.json("whoami", "--profile", "ledger", "--wallet", "key", **has_key)["wallet"] == "key"
    asked = person.run("whoami", MUNIMENT_PROFILE="ledger", MUNIMENT_WALLET=person.wallet.address)
    assert (asked.exit_code, "use --signer ADDRESS" in asked.stderr) == (2, True)
    said = person.run("login", MUNIMENT_PROFILE="ledger", MUNIMENT_WALLET="ledger").stderr
    assert "unknown wallet: use key, keystore:NAME" in said
    new = person.done("api-key", "rotate", "--profile", "ledger", "--grace", "0").strip()
    assert new != api_key
    assert new in file.read_text()
    file.chmod(0o644)
    refused = person.run("api-key", "--profile", "ledger")
    assert (refused.exit_code, new in refused.output) == (2, False)
    file.chmod(0o600)
    person.done("logout", "--profile", "ledger")
    assert new not in file.read_text()
    assert person.run("balances", "--profile", "ledger").exit_code != 0
    person.done("profiles", "--remove", "ledger")
    assert person.records("profiles") == []


def test_a_profile_with_another_url_gets_no_credential(person: Person) -> None:
    person.done("login")
    folder = person.home / "config/muniment"
    origin = f"{person.service.url} {person.wallet.address}"
    (folder / "credentials.json").write_text(json.dumps({origin: {"apiKey": "a secret", "token": "another"}}))
    (folder / "credentials.json").chmod(0o600)
    without = {"MUNIMENT_PRIVATE_KEY_FILE": None, "MUNIMENT_URL": None}
    assert "apiKey and token" in person.json("whoami", **without)["credentials"]
    assert person.json("whoami", "--url", "http://127.0.0.1:9", **without)["credentials"] == "none is stored"


def test_the_credentials_of_mimic_keep_their_other_profiles(person: Person) -> None:
    file = person.home / ".mimic/credentials"
    file.parent.mkdir()
    file.write_text("[default]\napi_key=first\n\n[here]\napi_key=old\n\n[last]\napi_key=third\n")
    person.done("login", "--mimic-profile", "here")
    api_key = person.done("api-key").strip()
    assert file.read_text() == f"[default]\napi_key=first\n\n[last]\napi_key=third\n\n[here]\napi_key={api_key}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert person.run("login", "--mimic-profile", "a]b").exit_code == 2


def test_everything_that_a_service_shows_is_verified(person: Person, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    person.done("triggers", "create", *draft(cid, "6.0.0"))
    said = person.done("verify", "--url", person.service.url)
    assert "all signatures and hashes match" in said
    wrong = person.run("verify", "--url", person.service.url, "--protocol", "Another")
    assert wrong.exit_code == 5
    assert "is not signed by" in wrong.stdout
    assert person.run("verify", "--url", person.service.url, "--data-dir", tmp_path).exit_code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_a_shell(person: Person, shell: str) -> None:
    assert "_MUNIMENT_COMPLETE" in person.done("completion", shell, MUNIMENT_URL="http://127.0.0.1:9")


def test_commands_are_completed_without_the_network() -> None:
    environment = {
        "_MUNIMENT_COMPLETE": "bash_complete", "COMP_WORDS": "muniment trig", "COMP_CWORD": "1",
        "MUNIMENT_URL": "http://127.0.0.1:9",
    }  # fmt: skip
    program = "import sys; sys.argv[0] = 'muniment'; from muniment.cli.main import main; main(prog_name='muniment')"
    done = warm.run(program=["-c", program], environment=environment)
    assert done.stdout == "plain,triggers\n"


def test_the_help_has_a_section_for_users_and_one_for_operators() -> None:
    said = CliRunner().invoke(main, ["--help"]).stdout
    users, operators = said.partition("Use a registry:")[2].split("Run a registry:")
    assert "\n  deploy " in users
    assert "\n  serve " in operators


@pytest.mark.parametrize(
    ("text", "expected"), [("never", 0), ("2027-01-31", 1_801_353_600_000), ("2027-01-31T12:00:00Z", 1_801_396_800_000)]
)
def test_an_end_is_a_date_in_utc(text: str, expected: int) -> None:
    assert end_ms(text) == expected


def test_an_end_may_be_a_span_from_now() -> None:
    assert abs(end_ms("30d") - time.time() * 1000 - 30 * 86_400_000) < 60_000


def test_another_wallet_sees_the_same_trigger(person: Person, served: Service, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    sig = person.json("triggers", "create", *draft(cid, "7.0.0"))["sig"]
    other = Person(served, tmp_path / "other", Wallet(78))
    refused = other.run("triggers", "deactivate", sig)
    assert refused.exit_code == 3
    assert "triggers/" not in refused.output
    assert sig in [each["sig"] for each in other.records("triggers", "list", "--signer", person.wallet.address)]
