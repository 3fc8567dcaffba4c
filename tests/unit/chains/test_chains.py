from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from muniment.chains.catalogue import CATALOGUE, MULTICALL3, NATIVE, SAMPLES, Chain, load_chains
from muniment.chains.multicall import _READER
from muniment.protocol.evm.address import Address

CONTRACTS = Path(__file__).parents[2] / "vectors" / "contracts"
FEED = "0x71041dddad3595F9CEd3DcCFBe3D1F4b0a16Bb70"
OLD, NEW = "0x" + "5e" * 20, "0x" + "5f" * 20
KEY = "https://rpc.example/v2/s3cr3t"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "chains.toml"
    path.write_text(text)
    return path


def test_without_a_file_it_is_the_catalogue_with_every_chain_off() -> None:
    assert load_chains(None) is CATALOGUE
    assert not any(chain.rpc_urls for chain in CATALOGUE.values())


def test_every_address_of_the_catalogue_has_its_checksum() -> None:
    for chain in CATALOGUE.values():
        feeds = [address for token, (feed, _) in chain.feeds.items() for address in (token, feed)]
        for address in [chain.multicall3, *feeds, *chain.settlers]:
            assert Address.parse(address) == address


def test_a_file_is_laid_over_the_catalogue(tmp_path: Path) -> None:
    text = f"""
        [[chains]]
        id = 8453
        rpc_urls = ["{KEY}", "http://127.0.0.1:8545"]
        settler = "0x{"5e" * 20}"
        token_lists = ["mine.json", "https://lists.example/all.json"]
        block_tag = "safe"
        [chains.feeds]
        {NATIVE} = {{feed = "{FEED}", heartbeat = 1200}}

        [[chains]]
        id = 31337
        name = "Local"
        native_symbol = "TST"
    """
    chains = load_chains(written(tmp_path, text))
    base = chains[8453]
    assert (base.name, base.price_slug, base.multicall3) == ("Base", "base", MULTICALL3)
    assert base.rpc_urls == (KEY, "http://127.0.0.1:8545")
    assert base.settler == Address.parse("0x" + "5e" * 20)
    assert (base.settlers, base.proposal_signers) == ((Address.parse(OLD),), ())
    assert base.token_lists == (str(tmp_path / "mine.json"), "https://lists.example/all.json")
    assert base.feeds == {NATIVE: (FEED, 1200)}
    assert base.block_tag == "safe"
    assert chains[31337] == Chain(31337, "Local", native_symbol="TST")
    assert chains[1] is CATALOGUE[1]
    assert "s3cr3t" not in repr(chains)


def test_each_chain_of_the_catalogue_has_an_explorer_to_which_paths_can_be_added() -> None:
    for chain in CATALOGUE.values():
        assert re.fullmatch(r"https://[a-z0-9.-]+[a-z0-9]", chain.explorer_url or ""), chain.id


@pytest.mark.parametrize("given", ["https://scan.example/base", "https://scan.example/base/", "http://127.0.0.1:4000"])
def test_an_explorer_of_a_file_has_no_slash_at_its_end(tmp_path: Path, given: str) -> None:
    chains = load_chains(written(tmp_path, f"[[chains]]\nid = 8453\nexplorer_url = '{given}'\n[[chains]]\nid = 1"))
    assert chains[8453].explorer_url == given.rstrip("/")
    assert chains[1].explorer_url == "https://etherscan.io"


def test_the_file_in_the_documentation_can_be_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/run/running.md").read_text("utf-8")
    (sample,) = [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[[chains]]" in block]
    assert load_chains(written(tmp_path, sample))[8453].settler == Address.parse(OLD)


def test_settlers_are_listed_newest_first_and_allowances_are_the_newest_ones(tmp_path: Path) -> None:
    text = (
        f"[[chains]]\nid = 10\nsettlers = {[NEW, OLD]}\nproposal_signers = {[OLD]}\n[[chains]]\nid = 1\nsettlers = []"
    )
    chains = load_chains(written(tmp_path, text))
    new, old = Address.parse(NEW), Address.parse(OLD)
    assert (chains[10].settlers, chains[10].settler, chains[10].proposal_signers) == ((new, old), new, (old,))
    assert chains[1].settler is None


def test_the_catalogue_has_both_generations_of_settlers() -> None:
    first, second = "0x609d831C0068844e11eF85a273c7F356212Fd6D1", "0x8be430d29a2c5692f9345a28506b849C6a99eDaA"
    assert {chain.id: chain.settlers for chain in CATALOGUE.values()} == {
        **dict.fromkeys((1, 10, 56, 100, 137, 146, 8453, 42161, 43114), (second, first)),
        84532: (first,),
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("chains = 1", "chains is wrong: write a table [[chains]]"),
        ("chains = [1]", "chains[0] is wrong: write a table [[chains]]"),
        ("chain = []", "chain is unknown: write a table [[chains]]"),
        ("[[chains]]\nname = 'x'", "chains[0].id is missing: write id = 8453"),
        ("[[chains]]\nid = true", "chains[0].id is wrong: write id = 8453"),
        ("[[chains]]\nid = 0", "chains[0].id is wrong: write id = 8453"),
        ("[[chains]]\nid = 31337", "chains[0].name is missing: a chain that is not in the catalogue needs a name"),
        ("[[chains]]\nid = 1\n[[chains]]\nid = 1", "chains[1].id: chain 1 is given twice"),
        ("[[chains]]\nid = 1\nrpc_url = 'https://s3cr3t'", "chains[0].rpc_url is unknown: write rpc_urls = ["),
        ("[[chains]]\nid = 1\nrpc_urls = 'https://s3cr3t'", "chains[0].rpc_urls is wrong: write rpc_urls = ["),
        ("[[chains]]\nid = 1\nrpc_urls = ['s3cr3t.example']", "chains[0].rpc_urls[0] is no http or https URL: write"),
        ("[[chains]]\nid = 1\nrpc_urls = ['wss://s3cr3t']", "chains[0].rpc_urls[0] is no http or https URL: write"),
        ("[[chains]]\nid = 1\nrpc_urls = ['http://s3cr3t:x']", "chains[0].rpc_urls[0] is no http or https URL: write"),
        ("[[chains]]\nid = 1\nsettler = '0x12'", "chains[0].settler: an address is"),
        ("[[chains]]\nid = 1\nsettler = ''", "chains[0].settler: an address is"),
        ("[[chains]]\nid = 1\nsettlers = '0x12'", "chains[0].settlers is wrong: write settlers = ["),
        ("[[chains]]\nid = 1\nsettlers = ['0x12']", "chains[0].settlers[0]: an address is"),
        (f"[[chains]]\nid = 1\nsettlers = {[OLD, OLD]}", "chains[0].settlers: an address is given twice"),
        (f"[[chains]]\nid = 1\nsettlers = []\nsettler = '{OLD}'", "chains[0].settler: settler and settlers"),
        (
            "[[chains]]\nid = 1\nproposal_signers = [1]",
            "chains[0].proposal_signers[0]: expected a string, got an integer",
        ),
        ("[[chains]]\nid = 1\nnative_decimals = 256", "chains[0].native_decimals is wrong: write native_decimals = 18"),
        ("[[chains]]\nid = 1\nblock_tag = 'pending'", "chains[0].block_tag is wrong: write block_tag = "),
        ("[[chains]]\nid = 1\nfeeds = []", "chains[0].feeds is wrong: write feeds = {"),
        (
            f"[[chains]]\nid = 1\nfeeds = {{{OLD} = {{feed = 's3cr3t', heartbeat = 9}}}}",
            f"feeds.{OLD}.feed: an address is",
        ),
        (f"[[chains]]\nid = 1\nfeeds = {{x = {{feed = '{OLD}', heartbeat = 9}}}}", "chains[0].feeds.x: an address is"),
        ("[[chains]]\nid = []", "chains[0].id is wrong: write id = 8453"),
        ("[[chains]]\nid = 1\nfeeds = {x = 1}", "chains[0].feeds.x is wrong: write feeds = {"),
        ("[[chains]]\nid = 1\nexplorer_url = 7", "chains[0].explorer_url is wrong: write explorer_url = "),
        (
            "[[chains]]\nid = 1\nexplorer_url = 's3cr3t.example'",
            "chains[0].explorer_url is no http or https URL: write explorer_url = ",
        ),
        (
            "[[chains]]\nid = 1\nexplorer_url = 'https://a.example/?key=s3cr3t'",
            "explorer_url has a user name, a query or a fragment",
        ),
        (
            "[[chains]]\nid = 1\nexplorer_url = 'https://a.example/#s3cr3t'",
            "explorer_url has a user name, a query or a fragment",
        ),
        (
            "[[chains]]\nid = 1\nexplorer_url = 'https://a.example/?'",
            "explorer_url has a user name, a query or a fragment",
        ),
        (
            "[[chains]]\nid = 1\nexplorer_url = 'https://s3cr3t@a.example'",
            "explorer_url has a user name, a query or a fragment",
        ),
        ("not toml s3cr3t", "not TOML"),
    ],
)
def test_the_message_about_a_wrong_file_names_the_member_and_no_key(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match="chains") as refusal:
        load_chains(path)
    assert told in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert "s3cr3t" not in str(refusal.value)


def test_a_file_that_is_not_there_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.toml: No such file or directory; `chains_file` names"):
        load_chains(tmp_path / "absent.toml")


def test_each_member_of_a_chain_has_a_sample() -> None:
    names = {each.name for each in dataclasses.fields(Chain)} | {"settler"}
    assert SAMPLES.keys() == {"chains", *(f"chains.{name}" for name in names)}


def test_the_reader_that_ships_is_the_one_whose_source_is_kept() -> None:
    artifact = json.loads((CONTRACTS / "OneShotReader.json").read_text())
    assert bytes.fromhex(artifact["bytecode"][2:]) == _READER
