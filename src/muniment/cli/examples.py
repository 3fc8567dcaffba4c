"""Examples in the help of each command. Variables stand for what a reader has, such as a CID or a signature."""

from __future__ import annotations

from typing import Final

import click

_SERVICE: Final = "https://registry.example.org"
_DATA: Final = "--data-dir data"
_EVENT: Final = "8453:$TOKEN:'Transfer(address,address,uint256)'"
EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "login": (f"muniment login --url {_SERVICE} --wallet keystore:main",),
    "logout": ("muniment logout --profile work",),
    "whoami": ("muniment whoami --profile work",),
    "profiles": ("muniment profiles", "muniment profiles --remove work"),
    "api-key": ("muniment api-key",),
    "api-key rotate": ("muniment api-key rotate --grace 3600",),
    "balances": ("muniment balances",),
    "deploy": ("muniment deploy build",),
    "functions list": ('muniment functions list --creator "$ADDRESS"',),
    "functions show": ('muniment functions show "$CID"',),
    "functions download": ('muniment functions download "$CID" copy',),
    "triggers preview": ("muniment triggers preview --function \"$CID\" --schedule '0 */6 * * *' --input limit=5",),
    "triggers sign": ('muniment triggers sign --function "$CID" --once --input limit=5 > trigger.json',),
    "triggers create": (
        "muniment triggers create --function \"$CID\" --schedule '0 */6 * * *' --end 30d --input limit=5",
        f'muniment triggers create --function "$CID" --on-event {_EVENT}',
        "muniment triggers create trigger.json",
    ),
    "triggers list": ("muniment triggers list --active",),
    "triggers show": ('muniment triggers show "$SIG"',),
    "triggers follow": ("muniment triggers follow --state position",),
    "triggers deactivate": ('muniment triggers deactivate "$SIG"',),
    "run": ('muniment run "$CID" --input limit=5', "muniment run --bundle build --input limit=5"),
    "runs list": ('muniment runs list --trigger "$SIG" --result stopped',),
    "runs show": ('muniment runs show "$HASH"',),
    "runs verify": ('muniment runs verify "$HASH"',),
    "runs prune": (f"muniment runs prune --older 30d {_DATA}",),
    "intents watch": (f"muniment intents watch --once {_DATA}",),
    "intents list": ('muniment intents list --status created --user "$ADDRESS"',),
    "intents show": ('muniment intents show "$HASH"',),
    "intents follow": ("muniment intents follow --state position",),
    "intents download": ("muniment intents download intents.ndjson",),
    "intents put": ("muniment intents put intent.json",),
    "intents propose": ('muniment intents propose "$HASH" proposal.json',),
    "intents log": ("muniment intents log \"$HASH\" 'sent to the chain' --level info",),
    "intents move": ('muniment intents move "$HASH" enqueued',),
    "intents release": (f'muniment intents release "$HASH" {_DATA}',),
    "events follow": ("muniment events follow --type trigger.created --state position",),
    "verify": (f"muniment verify {_DATA}", f"muniment verify --url {_SERVICE}"),
    "completion": (
        'bash: eval "$(muniment completion bash)" in ~/.bashrc',
        'zsh:  eval "$(muniment completion zsh)" in ~/.zshrc',
        "fish: muniment completion fish > ~/.config/fish/completions/muniment.fish",
    ),
    "serve": (f"muniment serve {_DATA}",),
    "demo": ("muniment demo --port 8787",),
    "migrate": (f"muniment migrate {_DATA}",),
    "config": ("muniment config --config muniment.toml",),
    "doctor": (f"muniment doctor {_DATA} --url {_SERVICE}",),
    "ping": (f"muniment ping --url {_SERVICE}",),
    "backup": (f"muniment backup /srv/backup {_DATA}",),
    "restore": ("muniment restore /srv/backup --data-dir restored",),
    "secrets list": (f"muniment secrets list {_DATA}",),
    "secrets rotate": (f"muniment secrets rotate {_DATA}",),
    "secrets retire": (f"muniment secrets retire {_DATA}",),
    "blocks copy": (f"muniment blocks copy file: database: {_DATA}",),
    "blocks pin": (f"muniment blocks pin --url {_SERVICE} --kubo http://127.0.0.1:5001 --once",),
    "database copy": (f"muniment database copy sqlite:///muniment.db postgresql://muniment@db/muniment {_DATA}",),
    "epoch renew": (f"muniment epoch renew {_DATA}",),
    "users set-email": (f'muniment users set-email "$ADDRESS" somebody@example.org {_DATA}',),
    "chains check": (f"muniment chains check --chains chains.toml {_DATA}",),
    "operators add": (f"muniment operators add relayer-1 {_DATA}",),
    "operators list": (f"muniment operators list {_DATA}",),
    "operators revoke": (f"muniment operators revoke relayer-1 {_DATA}",),
    "operators audit": (f"muniment operators audit --operator relayer-1 --limit 20 {_DATA}",),
    "relayer": ("muniment relayer --config relayer.toml", "muniment relayer --once --dry"),
    "relayer explain": ('muniment relayer explain "$SIG"',),
    "webhooks add": (f"muniment webhooks add https://receiver.example.org/hook --type trigger.created {_DATA}",),
    "webhooks list": (f"muniment webhooks list {_DATA}",),
    "webhooks show": (f'muniment webhooks show "$ID" {_DATA}',),
    "webhooks remove": (f'muniment webhooks remove "$ID" {_DATA}',),
    "webhooks resume": (f'muniment webhooks resume "$ID" {_DATA}',),
    "webhooks replay": (f'muniment webhooks replay "$ID" "$CURSOR" {_DATA}',),
    "webhooks rotate": (f'muniment webhooks rotate "$ID" {_DATA}',),
    "webhooks test": (f'muniment webhooks test "$ID" {_DATA}',),
    "tlog status": (f"muniment tlog status {_DATA}",),
    "tlog freeze": (f"muniment tlog freeze {_DATA}",),
    "tlog resume": (f"muniment tlog resume --seen checkpoint {_DATA}",),
    "tlog begin": (f"muniment tlog begin {_DATA}",),
    "tlog rotate": (f"muniment tlog rotate {_DATA}",),
    "tlog verify": (f"muniment tlog verify {_SERVICE} --state log.json",),
    "tlog replay": ("muniment tlog replay https://old.example.org --to https://new.example.org",),
}


def add_examples(command: click.Command, path: str) -> None:
    """Put the examples of the command at `path` after its help, and those of its commands if it is a group."""
    if lines := EXAMPLES.get(path):
        title = "Example:" if len(lines) == 1 else "Examples:"
        # Click keeps the lines of a paragraph that begins so.
        command.epilog = "\n".join(("\b", title, *(f"  {line}" for line in lines)))
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            add_examples(each, f"{path} {name}")
