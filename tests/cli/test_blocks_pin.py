"""`muniment blocks pin --once`: what the node has pinned then, what is printed, and the exit status."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from each_row import each_row
from middle import Answered, Asked, Behaviour, Forward, Middle
from muniment.cli.client.kubo import ANSWER_BYTES_MAX, Kubo, NodeAway, NotPinned, spellings
from muniment.cli.main import main
from muniment.client import Registry
from muniment.client.drivers import Blocking
from muniment.protocol.ipfs.car import car_header
from muniment.protocol.ipfs.cid import Cid
from pin_node import OTHER_ROOT, PinNode, pin_node
from pinning_world import deployed, middle, node, pin_once, service, versions
from ports import free_port
from service import Service

__all__ = ["middle", "node", "service"]  # the fixtures
SECRET = "a-secret&<of-the-node>"


@pytest.fixture(scope="module")
def cids(service: Service) -> list[str]:
    """Three functions, the oldest first."""
    return deployed(service.url, *versions(0, 3))


def lines(*cids: str) -> str:
    return "".join(f"pinned {cid}\n" for cid in cids)


def test_the_node_pins_what_it_lacks_in_the_order_of_the_registry(
    service: Service, cids: list[str], node: PinNode, tmp_path: Path
) -> None:
    done = pin_once(service.url, node, tmp_path)
    assert (done.exit_code, done.stdout, done.stderr) == (0, lines(*cids), "")
    assert (node.imports, list(node.pinned)) == (cids, cids)
    del node.pinned[cids[1]]
    done = pin_once(service.url, node, tmp_path)
    assert (done.exit_code, done.stdout, done.stderr) == (0, lines(cids[1]), "")
    assert node.imports == [*cids, cids[1]]
    for number, bundle in enumerate(versions(0, 3)):
        assert node.file(cids[number], "manifest.json") == bundle.manifest
        assert node.file(cids[number], "function.wasm") == bundle.wasm
    assert [*tmp_path.iterdir()] == []


def test_a_pin_under_the_other_version_of_a_cid_is_the_same_pin(
    service: Service, cids: list[str], node: PinNode, tmp_path: Path
) -> None:
    for cid in cids:
        node.pinned[spellings(Cid.parse(cid))[1]] = {}
    done = pin_once(service.url, node, tmp_path)
    assert (done.exit_code, done.stdout, node.imports) == (0, "", [])


def test_all_pages_of_the_list_are_read(
    service: Service, cids: list[str], tmp_path: Path, node: PinNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Registry(service.url) as registry:
        listed = registry.functions.list
        monkeypatch.setattr("muniment.client.sync.Functions.list", lambda _: listed(limit=2))
        assert pin_once(service.url, node, tmp_path).exit_code == 0
    assert node.imports == cids


def test_an_empty_registry_has_nothing_to_pin(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as empty:
        done = pin_once(empty.url, "http://127.0.0.1:9", tmp_path)
    assert (done.exit_code, done.output) == (0, "")


BUNDLE_FAULTS = {
    "500": "dag/import answered 500: import failed: no space left on device", "400": "dag/import answered 400: refused",
    "413": "dag/import answered 413: refused", "cut": "dag/import: ",
    "endless": f"answers with more than {ANSWER_BYTES_MAX} bytes", "lost answer": "dag/import: ",
    "half an answer": "dag/import: ", "wrong root": "the node answered with another root",
    "two roots": "the node answered with another root",
    "pin error": "the node did not pin: block was not found locally (offline): \\u001b[31mxxx",
    "no root": "the answer of dag/import ends without the root",
    "error at the end": "dag/import failed: unexpected EOF", "no json": "the node answered in another form than Kubo",
    "strange json": "the node answered in another form than Kubo",
    "deep json": "the node answered in another form than Kubo",
    "nothing": "the answer of dag/import ends without the root",
}  # fmt: skip


@pytest.mark.parametrize("fault", BUNDLE_FAULTS)
def test_a_bundle_that_the_node_does_not_pin_is_named_and_the_others_follow(
    service: Service, cids: list[str], node: PinNode, tmp_path: Path, fault: str
) -> None:
    node.fault = fault
    done = pin_once(service.url, node, tmp_path)
    *named, last = done.stderr.splitlines()
    assert (done.exit_code, done.stdout, last) == (1, "", "Error: 3 bundles not pinned")
    assert [each.split(": ")[1] for each in named] == cids
    for each in named:
        assert each.startswith("not pinned: ")
        assert BUNDLE_FAULTS[fault] in each
        assert each.isprintable()
        assert len(each) < 500


def test_one_bundle_that_is_refused_stops_no_other(
    service: Service, cids: list[str], node: PinNode, tmp_path: Path
) -> None:
    node.fault, node.faulty = "500", cids[1]
    done = pin_once(service.url, node, tmp_path)
    assert (done.exit_code, done.stdout) == (1, lines(cids[0], cids[2]))
    assert done.stderr == (
        f"not pinned: {cids[1]}: dag/import answered 500: import failed: no space left on device\n"
        "Error: 1 bundle not pinned\n"
    )
    assert list(node.pinned) == [cids[0], cids[2]]


@each_row("status", [301, 401, 403, 404, 405, 429, 502, 503, 504])
def test_a_node_that_cannot_be_used_ends_the_command_at_the_first_bundle(
    service: Service, cids: list[str], tmp_path: Path, status: int
) -> None:
    for at, set_fault in {"pin/ls": _look_status, "dag/import": _import_status}.items():
        with pin_node() as node:
            set_fault(node, status)
            done = pin_once(service.url, node, tmp_path)
            assert (done.exit_code, done.stdout) == (4, "")
            assert done.stderr.startswith(f"Error: {at} answered {status}")
            assert done.stderr.endswith(". Try again, or see --kubo\n")
            assert (node.looks[0], len(node.imports), node.pinned) == (cids[0], int(at == "dag/import"), {})


def _look_status(node: PinNode, status: int) -> None:
    node.look_status = status


def _import_status(node: PinNode, status: int) -> None:
    node.fault = str(status)


@pytest.mark.usefixtures("cids")
def test_500_without_a_reason_of_kubo_is_about_the_node(service: Service, node: PinNode, tmp_path: Path) -> None:
    node.fault = "500 of a proxy"
    done = pin_once(service.url, node, tmp_path)
    assert (done.exit_code, done.stderr) == (
        4, "Error: dag/import answered 500: <html>. Try again, or see --kubo\n",
    )  # fmt: skip


LOOKS = {
    "no json": b"<html>", "nothing": b"", "a list": b"[]", "no pins": b"{}", "strange pins": b'{"Keys":[1]}',
    "too large": b" " * (ANSWER_BYTES_MAX + 1), "deep": b"[" * 60_000,
}  # fmt: skip


@each_row("name", list(LOOKS))
def test_a_look_is_read_strictly(service: Service, cids: list[str], tmp_path: Path, name: str) -> None:
    with pin_node(look_answer=LOOKS[name]) as node:
        done = pin_once(service.url, node, tmp_path)
        assert (done.exit_code, done.stdout) == (4, "")
        assert done.stderr.startswith("Error: pin/ls: ")
        assert (node.looks, node.imports) == ([cids[0]], [])


@each_row("kind", ["direct", "indirect"])
def test_only_a_recursive_pin_of_this_bundle_counts(
    service: Service, cids: list[str], tmp_path: Path, kind: str
) -> None:
    for answer in ({cids[0]: kind}, {OTHER_ROOT: "recursive"}):
        keys = ",".join(f'"{cid}":{{"Type":"{each}"}}' for cid, each in answer.items())
        with pin_node(look_answer=f'{{"Keys":{{{keys}}}}}'.encode()) as node:
            assert pin_once(service.url, node, tmp_path).exit_code == 0
            assert node.imports == cids


@pytest.mark.usefixtures("cids")
def test_a_node_that_is_away_is_a_sentence(service: Service, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = pin_once(service.url, url, tmp_path)
    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr.startswith(f"Error: pin/ls: {url} does not answer: ")
    assert done.stderr.endswith(". Try again, or see --kubo\n")


def test_a_node_that_hangs_or_never_ends_is_left(cids: list[str], node: PinNode) -> None:
    cid = Cid.parse(cids[0])
    with httpx2.Client() as http:
        kubo = Kubo(Blocking(node.url, http, answer_s_max=0.2, answer_bytes_max=ANSWER_BYTES_MAX))
        node.may_answer.clear()
        with pytest.raises(NodeAway, match=r"pin/ls: .*the answer takes longer than 0\.2 seconds"):
            kubo.has_pinned(cid)
        node.may_answer.set()
        node.fault = "endless and slow"
        with pytest.raises(NotPinned, match=r"dag/import: .*the answer takes longer than 0\.2 seconds"):
            kubo.pin(cid, car_header([cid.parts]))


def test_a_registry_that_is_away_is_a_sentence(node: PinNode, tmp_path: Path) -> None:
    done = pin_once(f"http://127.0.0.1:{free_port()}", node, tmp_path)
    assert (done.exit_code, done.stdout, node.looks) == (4, "", [])
    assert done.stderr.endswith(" Try again, or see --url\n")


def contents(change: Callable[[Answered], Answered]) -> Behaviour:
    """A registry whose contents are changed."""

    def behave(asked: Asked, forward: Forward) -> Answered:
        return change(forward()) if asked.target.startswith("/ipfs/") else forward()

    return behave


FALSE = {
    "a bit": lambda answer: answer._replace(content=answer.content[:-9] + b"x" + answer.content[-8:]),
    "a part": lambda answer: answer._replace(content=answer.content[:-50]),
    "more": lambda answer: answer._replace(content=answer.content + answer.content[-40:]),
    "a page": lambda answer: answer._replace(content=b"<html>", headers={"content-type": "text/html"}),
    "a refusal": lambda _: Answered(404, {}, b'{"code":"content-not-found","detail":"lost"}'),
    "damage": lambda _: Answered(500, {}, b'{"code":"integrity","detail":"damaged"}'),
}  # fmt: skip


@pytest.mark.parametrize("name", FALSE)
def test_the_node_gets_no_byte_of_a_bundle_that_the_registry_does_not_prove(
    cids: list[str], middle: Middle, node: PinNode, tmp_path: Path, name: str
) -> None:
    with middle.behaving(contents(FALSE[name])):
        done = pin_once(middle.url, node, tmp_path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert [line.split(": ")[1] for line in done.stderr.splitlines()[:-1]] == cids
    assert (node.imports, node.pinned) == ([], {})


def test_a_list_that_names_what_is_no_bundle_stops_no_other(
    cids: list[str], middle: Middle, node: PinNode, tmp_path: Path
) -> None:
    raw = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"

    def behave(asked: Asked, forward: Forward) -> Answered:
        answer = forward()
        if asked.target.startswith("/functions"):
            return answer._replace(content=answer.content.replace(cids[0].encode(), raw.encode()))
        return answer

    with middle.behaving(behave):
        done = pin_once(middle.url, node, tmp_path)
    assert (done.exit_code, done.stdout) == (1, lines(*cids[1:]))
    assert done.stderr.startswith(f"not pinned: {raw}: a CID here must use the codec dag-pb")


def test_a_registry_that_asks_to_wait_is_asked_again(
    cids: list[str], middle: Middle, node: PinNode, tmp_path: Path
) -> None:
    refused: list[str] = []

    def behave(asked: Asked, forward: Forward) -> Answered:
        if asked.target not in refused:
            refused.append(asked.target)
            return Answered(429, {"retry-after": "0"}, b'{"code":"rate-limited","detail":"slower"}')
        return forward()

    with middle.behaving(behave):
        done = pin_once(middle.url, node, tmp_path)
    assert (done.exit_code, node.imports) == (0, cids)


@pytest.mark.parametrize("in_json", [False, True])
def test_the_credentials_are_sent_to_the_node_and_never_shown(
    service: Service, cids: list[str], node: PinNode, tmp_path: Path, *, in_json: bool
) -> None:
    node.authorization, node.refuses_in_json = f"Bearer {SECRET}", in_json
    (tmp_path / "right").write_text(f"Bearer {SECRET}\n")
    (tmp_path / "wrong").write_text(f"Bearer {SECRET}x\n")
    done = pin_once(service.url, node, tmp_path, MUNIMENT_KUBO_AUTHORIZATION=f"Basic {SECRET}")
    assert (done.exit_code, "Basic ********" in done.stderr) == (4, True)
    done = pin_once(service.url, node, tmp_path, MUNIMENT_KUBO_AUTHORIZATION_FILE=str(tmp_path / "wrong"))
    assert (done.exit_code, "Bearer ********" in done.stderr, "secret" in done.output) == (4, True, False)
    assert (node.imports, node.pinned) == ([], {})
    done = pin_once(service.url, node, tmp_path, MUNIMENT_KUBO_AUTHORIZATION_FILE=str(tmp_path / "right"))
    assert (done.exit_code, node.imports) == (0, cids)


def test_credentials_that_are_a_part_of_a_cid_hide_no_pin(
    service: Service, cids: list[str], node: PinNode, tmp_path: Path
) -> None:
    for imports in (cids, []):
        node.imports.clear()
        done = pin_once(service.url, node, tmp_path, MUNIMENT_KUBO_AUTHORIZATION="Bearer Q")
        assert (done.exit_code, done.stderr, node.imports) == (0, "", imports)


def test_a_reason_in_an_answer_to_an_import_does_not_show_the_credentials(
    service: Service, cids: list[str], node: PinNode, tmp_path: Path
) -> None:
    node.fault = "pin error"
    done = pin_once(service.url, node, tmp_path, MUNIMENT_KUBO_AUTHORIZATION="Bearer offline")
    assert (done.exit_code, node.imports) == (1, cids)
    assert done.stderr.count("block was not found locally (********)") == len(cids)


def test_a_file_of_credentials_that_cannot_be_read_is_refused_with_the_variable(
    service: Service, node: PinNode, tmp_path: Path
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    for name in ("none", "binary", "."):
        done = pin_once(service.url, node, tmp_path, MUNIMENT_KUBO_AUTHORIZATION_FILE=str(tmp_path / name))
        assert (done.exit_code, done.stdout, node.looks) == (2, "", [])
        assert done.stderr.startswith("Error: MUNIMENT_KUBO_AUTHORIZATION_FILE must name a text file")
    (tmp_path / "empty").write_text("\n")
    done = pin_once(service.url, node, tmp_path, MUNIMENT_KUBO_AUTHORIZATION_FILE=str(tmp_path / "empty"))
    assert (done.exit_code, done.stderr, node.looks) == (
        2, "Error: MUNIMENT_KUBO_AUTHORIZATION_FILE names an empty file\n", [],
    )  # fmt: skip


@each_row("text", [f"Bearer {SECRET}\r\nx-evil: 1", f"Bearer {SECRET}é", f" Bearer {SECRET}"])
def test_credentials_that_no_header_can_hold_are_refused_and_not_shown(
    service: Service, tmp_path: Path, text: str
) -> None:
    with pin_node() as node:
        done = pin_once(service.url, node, tmp_path, MUNIMENT_KUBO_AUTHORIZATION=text)
        assert (done.exit_code, done.stdout, node.looks) == (2, "", [])
    assert "MUNIMENT_KUBO_AUTHORIZATION has a line break" in done.stderr
    assert "secret" not in done.stderr


@each_row("url", [
    "127.0.0.1:5001", "ftp://127.0.0.1", "http://", "http://me:secret@127.0.0.1:5001", "http://127.0.0.1:5001?arg=1",
])  # fmt: skip
def test_a_node_is_a_url_without_credentials(service: Service, tmp_path: Path, url: str) -> None:
    done = pin_once(service.url, url, tmp_path)
    assert (done.exit_code, done.stdout, "secret" in done.stderr) == (2, "", False)
    assert done.stderr.startswith("Error: --kubo: ")


def test_a_proxy_of_the_environment_is_not_asked_for_the_node(
    service: Service, cids: list[str], node: PinNode, tmp_path: Path
) -> None:
    proxy = f"http://127.0.0.1:{free_port()}"  # which is away
    url = service.url.replace("127.0.0.1", "localhost")
    done = pin_once(url, node, tmp_path, http_proxy=proxy, no_proxy="localhost")
    assert (done.exit_code, node.imports) == (0, cids)


def test_one_of_the_two_ways_must_be_chosen() -> None:
    done = CliRunner().invoke(main, ["blocks", "pin", "--kubo", "http://127.0.0.1:9"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith("Error: give --follow or --once\n")


def test_the_commands_of_the_queue_name_the_command_that_replaces_them() -> None:
    for words in (["list"], ["retry", "Qm"], ["recheck", "--data-dir", "x"], ["list", "--pinned", "--json"]):
        done = CliRunner().invoke(main, ["pins", *words], prog_name="muniment")
        assert done.exit_code == 2
        assert "`muniment pins` is gone: `muniment blocks pin --kubo URL --follow` pins the bundles" in done.stderr
