"""Errors of commands that use a service: messages, next steps and exit statuses."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import get_args

import pytest
from click import ClickException

import warm
from builders import Wallet
from middle import Answered, Asked, Forward, always, before
from muniment.cli import output
from muniment.cli.client import intents
from muniment.protocol.intents.types import IntentStatus, LogLevel, ProposalStatus
from service import Service
from terminal import shown_on
from using import SAMPLE, Person, draft, intent, operator_key

NUMBERS = count(2_000)
NOWHERE = "http://127.0.0.1:9"
UNKNOWN_HASH, UNKNOWN_CID = "0x" + "11" * 32, "QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("served") / "data") as service:
        yield service


@pytest.fixture
def person(served: Service, tmp_path: Path) -> Person:
    return Person(served, tmp_path / "home", Wallet(next(NUMBERS)))


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["functions", "show", UNKNOWN_CID], 1, "Next: `muniment functions list`"),
        (["intents", "show", UNKNOWN_HASH], 1, "Next: `muniment intents list`"),
        (["functions", "show", "Qmfoo"], 2, "invalid-cid"),
        (["triggers", "show", "0x12"], 2, "invalid-signature"),
        (["triggers", "create"], 2, "name the function with --function"),
        (["triggers", "create", "--function", UNKNOWN_CID], 2, "one of --schedule, --on-event, --once, --config"),
        (
            ["triggers", "create", "--function", UNKNOWN_CID, "--schedule", "x", "--once"],
            2,
            "--schedule and --once exclude each other",
        ),
        (["triggers", "sign", "--function", UNKNOWN_CID, "--schedule", "x", "--at", "1h"], 2, "--at does not go with"),
        (["triggers", "sign", "--function", UNKNOWN_CID, "--config", "{}", "--end", "1h"], 2, "--end does not go with"),
        (["triggers", "create", "-", "--once"], 2, "give a FILE or --once, not both"),
        (["triggers", "sign", "-", "--fee-limit", "none"], 2, "give a FILE or --fee-limit, not both"),
        (["triggers", "preview", "-", "--input", "a=1"], 2, "give a FILE or --input, not both"),
        (["triggers", "preview", "-", "--description", "x"], 2, "give a FILE or --description, not both"),
        (["triggers", "preview", "--function", UNKNOWN_CID, "--schedule", "x", "--end", "soon"], 2, "--end soon"),
        (["triggers", "preview", "--function", UNKNOWN_CID, "--once", "--fee-limit", "0.5"], 2, "is half a dollar"),
        (["triggers", "sign", "--function", UNKNOWN_CID, "--once", "--fee-limit", "00"], 2, "It is none, or in"),
        (["triggers", "sign", "--function", UNKNOWN_CID, "--once", "--fee-limit", ""], 2, "--fee-limit : "),
        (["triggers", "preview", "--function", UNKNOWN_CID, "--schedule", "x", "--input", "a"], 2, "NAME=VALUE"),
        (["triggers", "list", "--wallet", "ledger"], 0, ""),  # a listing asks no wallet
        (["login", "--wallet", "ledger"], 2, "unknown wallet: use key, keystore:NAME"),
        (["login", "--wallet", "ab" * 32], 2, "unknown wallet: use key, keystore:NAME"),
        (["triggers", "list", "--wallet", Wallet().address], 2, "use --signer ADDRESS"),
        (["login", "--wallet", Wallet().address[2:].lower()], 2, "is an address, which cannot sign"),
        (["triggers", "list", "--signer", "keystore:main"], 1, "invalid-address"),
        (["functions", "list", "--url", "ftp://x"], 2, "http://host"),
        (["functions", "list", "--url", "http://user:secret@127.0.0.1"], 2, "remove the user and"),
        (["verify", "--remote", "ftp://x"], 2, "http://host"),
        (["functions", "list", "--profile", "unknown"], 2, "profile unknown not found; known profiles: none"),
        (["functions", "list", "--url", NOWHERE], 4, "does not answer"),
        (["intents", "log", UNKNOWN_HASH, "text"], 3, "set MUNIMENT_OPERATOR_KEY"),
        (["deploy", "/nowhere"], 2, "does not exist"),
        (["intents", "list", "--status", "done"], 2, "'created', 'enqueued', 'discarded', 'submitted', 'succeeded'"),
        (["intents", "move", UNKNOWN_HASH, "accepted"], 2, "an intent can be created, enqueued, discarded, submitted"),
        (["intents", "move", UNKNOWN_HASH, "created", "--proposal", UNKNOWN_HASH], 2, "a proposal can be received"),
    ],
)
def test_a_command_ends_with_a_status_and_the_next_step(
    person: Person, arguments: list[str], status: int, said: str
) -> None:
    result = person.run(*arguments)
    assert (result.exit_code, said in result.stderr) == (status, True), result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert "ab" * 32 not in result.stderr, "it may be a private key"


def test_a_manifest_with_a_byte_order_mark_is_named_before_it_is_sent(person: Person, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(b"\xef\xbb\xbf" + (SAMPLE / "manifest.json").read_bytes())
    (tmp_path / "function.wasm").write_bytes((SAMPLE / "function.wasm").read_bytes())
    for words in (["deploy", tmp_path, "--url", NOWHERE], ["run", "--bundle", tmp_path]):
        refused = person.run(*words)
        assert (refused.exit_code, refused.stdout) == (2, ""), refused.output
        assert "byte" in refused.stderr
        assert "order mark" in refused.stderr
    assert not (tmp_path / "CID.json").exists()


def test_the_statuses_and_levels_are_those_of_the_records() -> None:
    given = [get_args(get_args(each)[0]) for each in (IntentStatus, ProposalStatus, LogLevel)]
    assert given == [intents.STATUSES, intents.PROPOSAL_STATUSES, intents.LEVELS]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda each: each[:-2], "more inputs: fee (uint256); it takes chainId (uint32), token (address), amount"),
        (lambda each: [*each, "--input", "mode=fast"], "the function has no input mode; it takes chainId (uint32)"),
        (lambda each: [*each[:-1], "feee=1"], "fee (uint256); the function has no input feee; it takes chainId"),
        (lambda each: [*each[:-1], "fee=much"], "\n  /values/input/fee\n"),
    ],
)  # fmt: skip
def test_a_wrong_input_is_named_with_what_the_function_takes(
    person: Person, tmp_path: Path, changed: Callable[[list[str]], list[str]], said: str
) -> None:
    cid = person.deployed(tmp_path / "build")
    for command in ("preview", "sign", "create"):
        result = person.run("triggers", command, *changed(draft(cid)))
        assert (result.exit_code, said in result.stderr) == (2, True), result.output
        assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [["login"], ["balances"], ["api-key"], ["whoami"], ["triggers", "deactivate", "0x" + "1" * 128 + "1b"]],
    ids=lambda arguments: arguments[0],
)
def test_without_a_wallet_a_command_says_how_to_log_in(person: Person, arguments: list[str]) -> None:
    result = person.run(*arguments, MUNIMENT_PRIVATE_KEY_FILE=None)
    assert result.exit_code == 3
    assert "muniment login" in result.stderr


def test_a_credential_that_is_not_accepted_means_log_in(person: Person) -> None:
    result = person.run("intents", "log", UNKNOWN_HASH, "text", MUNIMENT_OPERATOR_KEY="mno_" + "0" * 64)
    assert result.exit_code == 3
    assert "invalid-operator-key" in result.stderr
    assert "mno_" not in result.output


def test_a_stored_token_that_has_ended_means_log_in_where_no_wallet_is_at_hand(person: Person) -> None:
    folder = person.home / "config/muniment"
    folder.mkdir(parents=True, mode=0o700)
    address = person.wallet.address
    (folder / "config.toml").write_text(f'[profiles.default]\nurl = "{person.service.url}"\naddress = "{address}"\n')
    (folder / "credentials.json").touch(mode=0o600)
    (folder / "credentials.json").write_text(json.dumps({f"{person.service.url} {address}": {"token": "e30.e30.e30"}}))
    result = person.run("balances", MUNIMENT_PRIVATE_KEY_FILE=None)
    assert (result.exit_code, "run `muniment login`" in result.stderr) == (3, True), result.output


def test_an_answer_that_is_forged_has_a_status_of_its_own_and_nothing_is_written(
    person: Person, served: Service, tmp_path: Path
) -> None:
    cid = person.deployed(tmp_path / "build")
    trigger = person.json("triggers", "create", *draft(cid))
    person.environment["MUNIMENT_OPERATOR_KEY"] = operator_key(served)
    person.done("intents", "put", "-", stdin=json.dumps(intent(1)))

    def lie(asked: Asked, forward: Forward) -> Answered:
        answer = forward()
        content = answer.content.replace(b'"chainId":8453', b'"chainId":8454').replace(
            b'"minValidations":1', b'"minValidations":2'
        )
        # A byte of the module, or of the manifest.
        content = content.replace(b"Transfer", b"Transfes").replace(b"\x00asm", b"\x00asn")
        return Answered(
            answer.status,
            answer.headers,
            content.replace(cid.encode(), UNKNOWN_CID.encode()) if asked.method == "POST" else content,
        )

    with before(served.url) as middle, middle.behaving(lie):
        commands: list[list[object]] = [
            ["triggers", "list"], ["triggers", "show", trigger["sig"]], ["triggers", "create", *draft(cid, "2.0.0")],
            ["intents", "list"], ["functions", "show", cid], ["functions", "download", cid, tmp_path / "copy"],
            ["deploy", tmp_path / "build"], ["intents", "download", tmp_path / "mirror"],
        ]  # fmt: skip
        (tmp_path / "build/CID.json").unlink()
        for command in commands:
            result = person.run(*command, "--url", middle.url)
            assert (result.exit_code, result.stderr[:14]) == (5, "Error: FORGED:"), (command, result.output)
            assert result.stdout == "", command
    assert not (tmp_path / "copy").exists()
    assert not (tmp_path / "build/CID.json").exists()
    assert (tmp_path / "mirror").read_text() == ""


PAGE = b"<html>\n<head><title>Bad Gateway</title></head>\n<p>Next: run this\n\x1b[31m"
PAGES = [400, 401, 403, 404, 405, 410, 413, 414, 418, 429, 451, 500, 501, 502, 503, 504, 505, 520]


@pytest.mark.parametrize("status", PAGES)
def test_a_page_of_a_proxy_means_try_again(person: Person, served: Service, status: int) -> None:
    """Whatever its status, it is not by a registry: logging in or looking for another record would not help."""
    page = Answered(status, {"content-type": "text/html", "retry-after": "100"}, PAGE)
    with before(served.url) as middle, middle.behaving(always(page)):
        for command in (["triggers", "list"], ["intents", "show", UNKNOWN_HASH], ["functions", "show", UNKNOWN_CID]):
            result = person.run(*command, "--url", middle.url)
            assert (result.exit_code, result.stdout) == (4, ""), result.output
            said, *more = result.stderr.splitlines()
            assert said.startswith("Error: not a problem document: <html> <head><title>Bad Gateway"), said
            assert "\x1b" not in said
            assert [each[:16] for each in more] == ["Next: try again,"]


CONSOLE = Answered(200, {"content-type": "text/html; charset=utf-8"}, PAGE)


@pytest.mark.parametrize(
    ("answered", "said"),
    [
        (CONSOLE, "answers with a page of HTML"), (CONSOLE._replace(headers={}), "answers without"),
        (Answered(200, {"content-type": "application/json"}, b'{"status":"ok"}'), "answers with"),
        (Answered(308, {"location": "https://other.example/x"}, b""), "sends on to https://other.example/x"),
    ],
)  # fmt: skip
def test_another_program_is_no_forger_but_a_wrong_url(
    person: Person, served: Service, tmp_path: Path, answered: Answered, said: str
) -> None:
    commands = [
        ["triggers", "list"], ["intents", "list"], ["runs", "list"], ["functions", "show", UNKNOWN_CID], ["login"],
        ["functions", "download", UNKNOWN_CID, tmp_path / "copy"], ["verify"], ["balances"], ["events", "follow"],
        ["triggers", "preview", *draft(UNKNOWN_CID)], ["triggers", "deactivate", "0x" + "1" * 128 + "1b"],
    ]  # fmt: skip
    with before(served.url) as middle, middle.behaving(always(answered)):
        for command in commands:
            result = person.run(*command, "--url", f"{middle.url}/console")
            assert (result.exit_code, result.stdout) == (4, ""), (command, result.output)
            first, step = result.stderr.splitlines()[-2:]
            assert f"{middle.url}/console " in first, first
            assert "that is no registry" in first, first
            assert f"perhaps {middle.url}: see --url" in step, step
            assert said in first or command != commands[0], first


@pytest.mark.parametrize(("status", "exit_status"), [(400, 1), (401, 3), (404, 1), (409, 1), (429, 4), (503, 4)])
def test_a_code_of_a_later_release_is_shown_with_the_status_of_its_family(
    person: Person, served: Service, status: int, exit_status: int
) -> None:
    problem = {"code": "of-tomorrow", "detail": "not\ntoday", "errors": [{"detail": "too\nlate", "pointer": "/when"}]}
    answer = Answered(status, {"content-type": "application/json", "retry-after": "100"}, json.dumps(problem).encode())
    with before(served.url) as middle, middle.behaving(always(answer)):
        result = person.run("triggers", "list", "--url", middle.url)
    assert (result.exit_code, result.stdout) == (exit_status, "")
    first, second, *_ = result.stderr.splitlines()
    assert (first, second) == ("Error: of-tomorrow: not\\ntoday", "  /when: too\\nlate")


def on_a_terminal(person: Person, *arguments: str, **environment: str) -> tuple[int, str]:
    """The status of a command in a terminal, and all that it shows there."""
    ours, theirs = pty.openpty()
    given = {**os.environ, "PYTHONPATH": str(warm.UNHURRIED), "COLUMNS": "200", **person.environment, **environment}
    set_ones = {name: value for name, value in given.items() if value is not None}
    process = warm.popen(arguments, set_ones, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = shown_on(ours).decode()
    return process.wait(timeout=60), shown


def test_a_terminal_gets_columns_in_colours_and_a_pipe_gets_json(person: Person, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    person.done("triggers", "create", *draft(cid, "8.0.0"), "--description", "a \u202e stranger's \x1b[31m text")
    mine = ["triggers", "list", "--signer", person.wallet.address]
    (record,) = person.records(*mine)
    status, shown = on_a_terminal(person, *mine)
    assert status == 0
    head, row = shown.replace("\r\n", "\n").strip().split("\n")
    assert "\x1b[1mSIGNATURE" in head
    assert "\x1b[34mactive\x1b[0m" in row
    assert row.endswith("a \\u202e stranger's \\u001b[31m text")
    _, plain = on_a_terminal(person, *mine, NO_COLOR="1")
    assert "\x1b" not in plain
    head, row = plain.replace("\r\n", "\n").strip().split("\n")
    assert head.index("STATUS") == row.index("active")
    _, narrow = on_a_terminal(person, *mine, NO_COLOR="1", COLUMNS="60")
    lines = narrow.replace("\r\n", "\n").strip().split("\n")
    assert max(map(len, lines)) <= 60
    assert [each.split()[0] for each in lines] == ["SIGNATURE", f"{record['sig'][:10]}…"]
    assert lines[0].split()[1:5] == ["STATUS", "FUNCTION", "WHEN", "(UTC)"]
    assert record["description"] == "a \u202e stranger's \x1b[31m text"


RAW = "a \u202e b \u2066 c\u2069 \x1b[31m \x9b \u2028 d"


def test_json_of_a_pipe_has_no_raw_controls_and_is_the_same_json(person: Person, tmp_path: Path) -> None:
    cid = person.deployed(tmp_path / "build")
    created = person.done("triggers", "create", *draft(cid, "9.0.0"), "--description", RAW)
    sig = json.loads(created)["sig"]
    mine = ["triggers", "list", "--signer", person.wallet.address]
    for said in (created, person.done(*mine), person.done("triggers", "show", sig), person.done(*mine, "--json")):
        assert all(line.isprintable() for line in said.rstrip("\n").split("\n"))
        assert json.loads(said)["description"] == RAW


def test_every_way_of_printing_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_text(f"first {RAW}\nsecond")
    output.print_note(RAW)
    output.print_json({"text": RAW})
    with pytest.raises(ClickException) as raised, output.errors_on_one_line():
        raise ValueError(RAW)
    said = capsys.readouterr()
    for text in (said.out, said.err, raised.value.message):
        assert "a \\u202e b \\u2066 c\\u2069 \\u001b[31m \\u009b \\u2028 d" in text
        assert text.replace("\n", "").isprintable()
    assert json.loads(said.out.splitlines()[2]) == {"text": RAW}


def test_no_secret_is_in_what_a_command_shows(person: Person, tmp_path: Path) -> None:
    secret = "mnk_a-secret-of-somebody"
    for environment in ({"MUNIMENT_API_KEY": secret}, {"MUNIMENT_OPERATOR_KEY": secret}):
        for arguments in (["deploy", person.home], ["whoami"], ["intents", "log", UNKNOWN_HASH, "text"]):
            result = person.run(*arguments, **environment)
            assert secret not in result.output
    (tmp_path / "key").write_text("not a key but a secret")
    result = person.run("login", MUNIMENT_PRIVATE_KEY_FILE=str(tmp_path / "key"))
    assert result.exit_code == 2
    assert "not a key" not in result.output


LOADED = (
    "import sys; from muniment.cli.main import main; main(sys.argv[1:], standalone_mode=False); print(*sys.modules)"
)


def modules(*arguments: str) -> set[str]:
    """The modules that a command has loaded at its end."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split("\n")[-2].split())


def test_help_loads_no_client_and_a_client_command_no_server(served: Service) -> None:
    helped = modules("--help")
    assert "muniment.cli.client.account" in helped
    assert not helped & {"httpx2", "msgspec", "btclib_secp256k1", "muniment.client", "asyncio"}
    used = modules("functions", "list", "--url", served.url)
    assert "muniment.client" in used
    assert not used & {
        "uvicorn", "httptools", "asyncpg", "sqlite3", "structlog", "cryptography", "jwt", "wasmtime",
        "muniment.service.http", "muniment.service.storage", "muniment.service.context",
    }  # fmt: skip
