"""What each import of a function does, and the texts that it takes and gives."""

from __future__ import annotations

import json
from typing import Any

from each_row import each_row
from guest_modules import CONTEXT, Texts, logged, module, run_here
from muniment.guest.module import QUERIES
from muniment.guest.types import Answer, Question
from muniment.protocol.evm.hashing import keccak256


def _said(call: str, argument: str, **ways: Any) -> str:
    """The text that an import answers to `argument`."""
    texts = Texts()
    done = logged(f"(call ${call} {texts.at(argument)})", imports=[call], texts=texts, **ways)
    assert done.reason is None, done.text
    (line,) = done.logs
    return line.removeprefix("[Info] ")


def test_log_lines_have_their_level_and_critical_does_not_end_a_run() -> None:
    texts = Texts()
    calls = "".join(f"(call $log._log (i32.const {level}) {texts.at(f'línea {level} 🐍')})" for level in range(5))
    done = run_here(module(calls, imports=["log._log"], texts=texts))
    assert done.logs == [
        f"[{name}] línea {n} 🐍" for n, name in enumerate(("Critical", "Error", "Warning", "Info", "Debug"))
    ]
    assert (done.reason, done.logs_cut, done.fuel_used > 0) == (None, False, True)


def test_a_level_that_does_not_exist_ends_the_run() -> None:
    texts = Texts()
    done = run_here(module(f"(call $log._log (i32.const 5) {texts.at('x')})", imports=["log._log"], texts=texts))
    assert done.reason == "bad-argument"


def test_the_context_is_given_as_it_is() -> None:
    done = logged("(call $environment._getContext)", imports=["environment._getContext"], texts=Texts())
    assert done.logs == [f"[Info] {CONTEXT}"]


@each_row("text", ["", "0x1234", "ñ 🐍"])
def test_keccak_is_of_the_text_in_utf_8_even_if_it_looks_like_hex(text: str) -> None:
    assert _said("evm._keccak", text) == f"0x{keccak256(text.encode()).hex()}"


def test_the_nonce_of_an_intent_is_the_hash_of_the_context() -> None:
    # The rule of guests: keccak of UTF-8 triggerSig, timestamp, payload and index, without separators.
    payload = "0x" + "00" * 31 + "05"
    text = f"0x{'ab' * 65}1438223173000{payload}1"
    assert _said("evm._keccak", text) == "0x748c9ccdd40848fe7d77f3ebc9cb1a71ea1991ec5c0971acc2ae9003a9a09fd7"


def test_encoding_and_decoding_are_texts() -> None:
    word = f"{7:064x}"
    assert _said("evm._encode", '[{"abiType":"uint256","value":"7"}]') == word
    assert _said("evm._decode", json.dumps({"abiType": "uint256", "value": f"0x{word}"})) == "7"


QUESTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "evmCall": ({"to": "0xaa", "chainId": 8453, "data": "0x"}, {"to": "0xaa", "chainId": "8453", "data": "0x"}),
    "tokenPrice": (
        {"address": "0xaa", "chainId": 1, "timestamp": 1795204080000},
        {"address": "0xaa", "chainId": "1", "timestamp": "1795204080000"},
    ),
    "relevantTokens": (
        {"owner": "0xaa", "chainIds": [1, 10], "usdMinAmount": "0", "tokens": [{"address": "0xbb", "chainId": 1}],
         "tokenFilter": 0, "timestamp": None},
        {"owner": "0xaa", "chainIds": ["1", "10"], "usdMinAmount": "0",
         "tokens": [{"address": "0xbb", "chainId": "1"}], "tokenFilter": "0"},
    ),
    "subgraph": (
        {"chainId": 1, "subgraphId": "Qm", "query": "{a}", "timestamp": 0},
        {"chainId": "1", "subgraphId": "Qm", "query": "{a}"},
    ),
    "svmAccountsInfo": ({"publicKeys": ["1111"]}, {"publicKeys": ["1111"]}),
    "api": ({"url": "https://example.org/"}, {"url": "https://example.org/"}),
}  # fmt: skip


@each_row("query", QUERIES)
def test_a_question_reaches_who_answers_with_texts_for_numbers(query: str) -> None:
    given, params = QUESTIONS[query]
    asked: list[Question] = []

    def ask(question: Question) -> Answer:
        asked.append(question)
        return Answer(success=True, data=["1", {"a": 2}])

    said = _said(f"environment._{query}Query", json.dumps(given), ask=ask)
    assert [(each.query, each.params) for each in asked] == [(query, params)]
    assert said == '{"success":"true","data":["1",{"a":2}],"error":""}'


@each_row(
    ("query", "data"),
    [
        ("evmCall", '""'), ("tokenPrice", "[]"), ("relevantTokens", "[]"), ("api", '""'),
        ("subgraph", '{"blockNumber":0,"data":""}'), ("svmAccountsInfo", '{"accountsInfo":[],"slot":""}'),
    ],
)  # fmt: skip
def test_a_question_without_an_answer_has_data_that_its_parser_reads(query: str, data: str) -> None:
    said = _said(
        f"environment._{query}Query", json.dumps(QUESTIONS[query][0]),
        ask=lambda _: Answer(success=False, error="nobody knows"),
    )  # fmt: skip
    assert said == f'{{"success":"false","data":{data},"error":"nobody knows"}}'


@each_row(
    "text",
    [
        "", "x", "[]", "{", '{"to":"0x","chainId":1}', '{"to":"0x","chainId":1,"data":"0x","block":1}',
        '{"to":"0x","chainId":1.5,"data":"0x"}', '{"to":"0x","chainId":1,"data":{"a":1}}',
        '{"to":"0x","chainId":1,"data":"\\u0000"}', '{"to":"0x","to":"0x","chainId":1,"data":"0x"}',
        '{"to":"0x","chainId":1,"data":[[1]]}', "[" * 100,
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_read_ends_the_run(text: str) -> None:
    texts = Texts()
    call = f"(call $environment._evmCallQuery {texts.at(text)})"
    done = logged(call, imports=["environment._evmCallQuery"], texts=texts)
    assert (done.reason, done.logs) == ("bad-argument", [])


def test_what_is_of_other_chains_is_refused() -> None:
    texts = Texts()
    call = f"(call $svm._findProgramAddress {texts.at('{}')})"
    done = logged(call, imports=["svm._findProgramAddress"], texts=texts)
    assert (done.reason, done.intents) == ("refused-call", [])


@each_row(
    ("name", "kind"), [("_transfer", "transfer"), ("_swap", "swap"), ("_evmCall", "evmCall"), ("_sendIntent", "intent")]
)
def test_intents_are_kept_in_their_order_as_they_were_sent(name: str, kind: str) -> None:
    texts = Texts()
    bodies = [f'{{"n": {number}}}' for number in range(3)]
    calls = "".join(f"(call $environment.{name} {texts.at(body)})" for body in bodies)
    done = run_here(module(calls, imports=[f"environment.{name}"], texts=texts))
    assert (done.reason, done.intents) == (None, [(kind, body.encode()) for body in bodies])


@each_row("text", ["", "[]", '"x"', "{}{}", '{"a":1,"a":2}'])
def test_an_intent_that_is_no_object_ends_the_run(text: str) -> None:
    texts = Texts()
    call = f"(call $environment._transfer {texts.at(text)})"
    done = run_here(module(call, imports=["environment._transfer"], texts=texts))
    assert (done.reason, done.intents) == ("bad-argument", [])


def test_an_abort_says_its_message_and_its_place() -> None:
    texts = Texts()
    message, file = texts.at("no price"), texts.at("src/function.ts")
    body = f"(call $env.abort {message} {file} (i32.const 12) (i32.const 5))"
    done = run_here(module(body, imports=["env.abort"], texts=texts))
    assert (done.reason, done.text) == ("abort", "no price (at src/function.ts:12:5)")
    assert done.logs == ["[Error] no price"]


def test_the_words_of_an_abort_end_the_log_whatever_was_logged_before() -> None:
    for line, count, cut in (("a", 300, True), ("a" * 4_000, 40, True), ("a", 199, False)):
        texts = Texts()
        logs = f"(call $log._log (i32.const 3) {texts.at(line)})" * count
        words, zero = texts.at("w" * 5_000), "(i32.const 0)"
        done = run_here(
            module(
                f"{logs} (call $env.abort {words} {zero} {zero} {zero})", imports=["log._log", "env.abort"], texts=texts
            )
        )
        assert done.logs[-1] == f"[Error] {'w' * 4_000}"
        assert done.logs_cut is cut
        assert len(done.logs) <= 200
        assert sum(map(len, done.logs)) <= 64 * 1024
        assert {each[:10] for each in done.logs[:-1]} == {f"[Info] {line}"[:10]}


@each_row("pointer", ["(i32.const 0)", "(i32.const -1)", "(i32.const 7)"])
def test_an_abort_without_a_message_is_one_too(pointer: str) -> None:
    body = f"(call $env.abort {pointer} (i32.const 0) (i32.const 0) (i32.const 0))"
    done = run_here(module(body, imports=["env.abort"]))
    assert (done.reason, done.text) == ("abort", "abort")


def test_a_run_that_aborts_in_its_last_line_has_no_intents() -> None:
    texts = Texts()
    zero = "(i32.const 0)"
    body = f"(call $environment._transfer {texts.at('{}')}) (call $env.abort {zero} {zero} {zero} {zero})"
    done = run_here(module(body, imports=["environment._transfer", "env.abort"], texts=texts))
    assert (done.reason, done.intents) == ("abort", [])


def test_half_a_surrogate_pair_and_nul_become_the_replacement_character() -> None:
    texts = Texts()
    done = logged(texts.at("a\ud83d b\0"), imports=[], texts=texts)
    assert done.logs == ["[Info] a\ufffd b\ufffd"]
