"""Commands that use a service, run in this process with an environment of their own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

import warm
from builders import Wallet
from muniment.cli.main import main
from muniment.protocol.intents.types import NewIntent, NewProposal
from service import Service

SAMPLE = Path(__file__).parents[2] / "src/muniment/cli/sample"
SAMPLE_INPUT = {
    "chainId": 8453, "token": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "amount": 1_000_000,
    "recipient": "0x1111111111111111111111111111111111111111", "fee": 10_000,
}  # fmt: skip


@dataclass
class Person:
    """A user with a home directory, an environment and a wallet."""

    service: Service
    home: Path
    wallet: Wallet = field(default_factory=lambda: Wallet(77))
    environment: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def __post_init__(self) -> None:
        self.home.mkdir(exist_ok=True)
        (self.home / "key").write_text(self.wallet.key.hex())
        self.environment = {
            "HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config"), "MUNIMENT_URL": self.service.url,
            "MUNIMENT_PRIVATE_KEY_FILE": str(self.home / "key"), **self.environment,
        }  # fmt: skip

    def run(self, *arguments: object, stdin: str | None = None, **environment: str | None) -> Result:
        """Run a command; None in `environment` removes a variable."""
        return CliRunner().invoke(
            main, [str(each) for each in arguments], input=stdin, env={**self.environment, **environment}
        )

    def done(self, *arguments: object, stdin: str | None = None, **environment: str | None) -> str:
        """Output of a command that must succeed."""
        result = self.run(*arguments, stdin=stdin, **environment)
        assert result.exit_code == 0, f"{arguments}: {result.output} {result.exception!r}"
        return result.stdout

    def json(self, *arguments: object, stdin: str | None = None, **environment: str | None) -> Any:
        """The record that a command prints."""
        return json.loads(self.done(*arguments, stdin=stdin, **environment))

    def records(self, *arguments: object, **environment: str | None) -> list[Any]:
        """The records that a command prints, one a line."""
        return [json.loads(line) for line in self.done(*arguments, **environment).splitlines()]

    def deployed(self, directory: Path) -> str:
        """The CID of the sample, deployed from `directory`."""
        directory.mkdir(exist_ok=True)
        for name in ("manifest.json", "function.wasm"):
            (directory / name).write_bytes((SAMPLE / name).read_bytes())
        return self.json("deploy", directory)["CID"]


def draft(cid: str, version: str = "1.0.0", end: str = "never") -> list[str]:
    """The options of a draft for the sample."""
    return [
        "--function", cid, "--end", end, "--schedule", "0 */6 * * *", "--version", version,
        *(part for name, value in SAMPLE_INPUT.items() for part in ("--input", f"{name}={value}")),
    ]  # fmt: skip


def intent(number: int, deadline: int = 4_000_000_000) -> dict[str, Any]:
    """An intent; each number makes another."""
    return {**NewIntent.example, "nonce": f"0x{number:064x}", "deadline": str(deadline)}


def proposal() -> dict[str, Any]:
    """A proposal without signatures."""
    return {name: value for name, value in NewProposal.example.items() if name != "signatures"}


def operator_key(service: Service, name: str = "relayer") -> str:
    """The key of a new operator."""
    done = warm.run("operators", "add", name, data=service.data_dir)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
