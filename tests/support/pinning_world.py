"""A registry with functions, and `muniment blocks pin` between it and a node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builders import Bundle, Wallet
from middle import Middle, before
from muniment.cli.main import main
from muniment.client import Bundle as Files, KeySigner, Registry
from pin_node import PinNode, pin_node
from service import Service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("registry")) as served:
        yield served


@pytest.fixture
def node() -> Iterator[PinNode]:
    with pin_node() as started:
        yield started


@pytest.fixture
def middle(service: Service) -> Iterator[Middle]:
    """What stands between a client and the registry."""
    with before(service.url) as between:
        yield between


def deployed(url: str, *bundles: Bundle) -> list[str]:
    """The CIDs of these bundles, which are deployed in this order."""
    with Registry(url, signer=KeySigner(Wallet(1).key)) as registry:
        return [str(registry.functions.deploy(Files(each.manifest, each.wasm)).cid) for each in bundles]


def versions(first: int, count: int) -> list[Bundle]:
    """Small bundles."""
    return [Bundle(version=f"1.0.{number}") for number in range(first, first + count)]


def pin_once(url: str, node: PinNode | str, home: Path, **environment: str | None) -> Result:
    """Run the command in this process, in which no variable names a wallet or a node."""
    kubo = node if isinstance(node, str) else node.url
    plain = {"HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    return CliRunner().invoke(
        main, ["blocks", "pin", "--url", url, "--kubo", kubo, "--once"], env={**plain, **environment}
    )
