"""`muniment runs list` and `show`: what they say of runs, and with which status they end for a lie."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from middle import Answered, Asked, Forward, Middle, before
from muniment.protocol.runs.payloads import EventPayload, event_payload
from muniment.protocol.wire import moment
from run_bodies import RELAYER, SIG, answered, new_run
from service import Service
from using import Person

OUTPUTS = [{"hash": "0x" + "ab" * 32}, {"hash": "0x" + "cd" * 32}]


@pytest.fixture(scope="module")
def middle() -> Iterator[Middle]:
    with before("http://127.0.0.1:9") as made:
        yield made


@pytest.fixture
def person(middle: Middle, tmp_path: Path) -> Person:
    return Person(cast("Service", middle), tmp_path / "home")


def shown(person: Person, middle: Middle, record: dict[str, Any], *more: str) -> str:
    """What `runs show` prints of a record."""
    with middle.behaving(telling(record)):
        return " ".join(person.done("runs", "show", record["hash"], "--columns", *more).split())


def telling(content: Any) -> Any:
    def behave(asked: Asked, forward: Forward) -> Answered:
        del asked, forward
        return Answered(200, {"content-type": "application/json"}, json.dumps(content).encode())

    return behave


def test_show_says_result_time_blocks_questions_intents_and_relayers(person: Person, middle: Middle) -> None:
    record = answered(new_run(result="intents", outputs=OUTPUTS), conflicts=["0x" + "77" * 32])
    record["outputs"][1]["recorded"] = False
    text = shown(person, middle, record)
    for words in (
        "outcome not carried out: its intent was not recorded here: published ", " after it was due",
        f"trigger {SIG}", "2026-11-20T", ", cron", "result intents", "status valid, 1 validation (as the service says)",
        f"{OUTPUTS[0]['hash']} (as", f"{OUTPUTS[1]['hash']}, not recorded here (as", "chain 8453, block 38000000, 0x02",
        f'tokenPrice address {RELAYER}, chainId 8453: ["1000000000000000000"]',
        f"evidence {record['records'][0]['evidence']} (as", f"conflicts 0x{'77' * 32}", "[Info] price 1.02",
    ):  # fmt: skip
        assert words in text, words
    with middle.behaving(telling(record)):
        assert json.loads(person.done("runs", "show", record["hash"]))["hash"] == record["hash"]


def test_an_intent_of_a_run_that_was_published_late_came_too_late(person: Person, middle: Middle) -> None:
    record = answered(new_run(result="intents", outputs=OUTPUTS))
    record["outputs"][1]["recorded"] = False
    record["createdAt"] = moment(record["timestamp"] + 600_000)
    text = shown(person, middle, record)
    assert "outcome not carried out: its intent was too late when published: 10 minutes after it was due" in text
    assert f"{OUTPUTS[1]['hash']}, too late when published (as" in text


REASONS: dict[str, tuple[dict[str, Any], str]] = {
    "stopped": (
        {"result": "stopped", "reason": {"code": "abort", "text": "too \u202edear"}},
        "result stopped, abort: the function called abort: too \\u202edear (as the service says)",
    ),
    "declined": (
        {"result": "stopped", "reason": {"code": "abort", "text": "too dear"}}, "outcome declined by the function",
    ),
    "fuel": (
        {"result": "stopped", "reason": {"code": "fuel", "text": ""}},
        "outcome not carried out: the function used up its fuel",
    ),
    "missed": (
        {"result": "missed", "reason": {"code": "gap", "text": ""}, "missedCount": 3, "from": 1_795_204_080_000,
         "to": 1_795_204_200_000},
        "missed, gap: no relayer of this operator ran then (3 runs from 2026-11-20T19:48:00.000Z to 2026-11-20T19:50",
    ),
    "failed question": (
        {"inputs": [{"query": "api", "params": {"url": "x"}, "answer": {"success": False, "error": "never asked"}}]},
        "questions api url x: no answer: never asked",
    ),
    "long answer": (
        {"inputs": [{"query": "evmCall", "params": {}, "answer": {"success": True, "data": "0x" + "12" * 500}}]},
        "… (1002 characters)",
    ),
    "cut log": ({"logsCut": True}, "(the function logged more)"),
    "far start": (
        {"triggerType": 2, "triggerData": f"0x{8_640_000_000_000_000:064x}", "timestamp": 8_640_000_000_000_000},
        "8640000000000000 ms after 1970",
    ),
    "nothing": ({"inputs": [], "blocks": [], "logs": []}, "questions none"),
}  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_show_says_why(person: Person, middle: Middle, name: str) -> None:
    members, words = REASONS[name]
    assert words in shown(person, middle, answered(new_run(**members)))


def test_show_says_which_event_made_a_run_due(person: Person, middle: Middle) -> None:
    example = new_run()
    event = EventPayload(8453, example.blocks[0].hash, 7, example.context.settlers[0].address, (), example.trigger_data)
    run = new_run(triggerType=1, triggerData="0x" + event_payload(event).hex())
    assert f"event: log 7 of block 0x{'02' * 32} on chain 8453, by 0x609d" in shown(person, middle, answered(run))


def test_list_asks_for_the_newest_and_shows_a_run_a_line(person: Person, middle: Middle) -> None:
    rows = [
        {name: value for name, value in answered(new_run(n)).items() if name not in {"inputs", "context"}}
        for n in range(3)
    ]
    filters = ["--trigger", SIG, "--relayer", RELAYER, "--result", "nothing"]
    with middle.behaving(telling(rows)):
        lines = person.done("runs", "list", "--columns", "--limit", "3", *filters).splitlines()
        assert person.records("runs", "list", "--limit", "3")[2]["hash"] == rows[2]["hash"]
    assert lines[0].split()[:3] == ["HASH", "TRIGGER", "RESULT"]
    assert len(lines) == 4
    assert rows[0]["hash"] not in lines[1]
    query = f"triggerSig={SIG}&relayer={RELAYER}&result=nothing"
    assert middle.asked[-2].target == f"/executions?sort=-1&limit=3&{query}"
    with middle.behaving(telling([])):
        person.done("runs", "list")
    assert middle.asked[-1].target == "/executions?sort=-1&limit=30"


def test_list_says_that_there_are_more_than_it_prints(person: Person, middle: Middle) -> None:
    run = answered(new_run())
    row = {name: value for name, value in run.items() if name not in {"inputs", "context"}}
    link = {"content-type": "application/json", "link": '</executions?sort=-1&cursor=b>; rel="next"'}

    def behave(asked: Asked, forward: Forward) -> Answered:
        del forward
        is_last = "cursor=" in asked.target
        if run["hash"] in asked.target:  # whole, for `--all`
            return Answered(200, {}, json.dumps(run).encode())
        return Answered(200, {} if is_last else link, json.dumps([row] * (1 if is_last else 30)).encode())

    with middle.behaving(behave):
        for options, count, said in (([], 30, "--all prints more"), (["--limit", "30"], 30, ""), (["--all"], 31, "")):
            result = person.run("runs", "list", *options)
            assert (result.exit_code, len(result.stdout.splitlines())) == (0, count), result.output
            assert said in result.stderr
            assert bool(said) is bool(result.stderr)


def test_a_short_hash_names_one_of_the_newest_runs_or_none(person: Person, middle: Middle) -> None:
    run = answered(new_run())
    row = {name: value for name, value in run.items() if name not in {"inputs", "context"}}
    rows = [{**row, "hash": f"0x{'ab' * 4}{number:056x}"} for number in range(2)]
    given = {
        "0xABABab": "0xababab is the beginning of 2 runs: give more characters",
        "0xabababab1…": "none of the newest 500 runs begins with 0xabababab1: give the whole value",
        "0xabab": "invalid-",  # too short to be looked for
    }
    for start, said in given.items():
        with middle.behaving(telling(rows)):
            result = person.run("runs", "show", start, "--no-verify")
        assert (result.exit_code, said in result.stderr) == (2, True), result.output
    assert middle.asked[-1].target == "/executions?sort=-1&limit=100"


def test_the_newest_run_of_each_of_several_triggers(person: Person, middle: Middle) -> None:
    run = answered(new_run())
    row = {name: value for name, value in run.items() if name not in {"inputs", "context"}}
    other = "0x" + "34" * 64 + "1b"
    with middle.behaving(telling([row])):
        found = person.records("runs", "list", "--latest", "--trigger", SIG, "--trigger", other)
    assert [each["triggerSig"] for each in found] == [SIG]


WRONG = {
    "no trigger": ["--latest"],
    "another filter": ["--latest", "--trigger", SIG, "--result", "nothing"],
    "a limit": ["--latest", "--trigger", SIG, "--limit", "1"],
    "several triggers": ["--trigger", SIG, "--trigger", SIG],
    "no limit": ["--limit", "0"],
    "limit and all": ["--limit", "3", "--all"],
    "no result": ["--result", "something"],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_is_refused_before_anything_is_asked(person: Person, middle: Middle, name: str) -> None:
    before_ = len(middle.asked)
    result = person.run("runs", "list", *WRONG[name])
    assert result.exit_code == 2
    assert len(middle.asked) == before_


def test_a_lie_ends_with_the_status_for_lies(person: Person, middle: Middle) -> None:
    record = answered(new_run())
    lie = {**record, "context": {"consensusThreshold": 2, "settlers": []}}
    with middle.behaving(telling(lie)):
        result = person.run("runs", "show", record["hash"])
    assert (result.exit_code, result.stderr[:14]) == (5, "Error: FORGED:")
    with middle.behaving(telling([{**record, "result": "intents"}])):
        assert person.run("runs", "list").exit_code == 5
