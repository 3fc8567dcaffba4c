"""The commands of `muniment`, by what they do with a registry."""

from __future__ import annotations

from collections.abc import Iterator

import click

# These make a registry.
MAKES = {"serve", "migrate", "demo", "restore"}
# These ask a service, and look at no file of a registry.
ASKS = {
    "ping", "events follow", "login", "logout", "whoami", "profiles", "api-key rotate", "balances", "deploy",
    "functions list", "functions show", "functions download", "triggers preview", "triggers sign", "triggers create",
    "triggers list", "triggers show", "triggers follow", "triggers deactivate", "intents list", "intents show",
    "intents follow", "intents download", "intents put", "intents propose", "intents log", "intents move", "completion",
    "runs list", "runs show", "runs verify", "run", "relayer explain", "tlog verify", "tlog replay",
    "blocks pin",
}  # fmt: skip
# These need a registry; the arguments with which each can be called, `BACKUP` for a directory.
NEEDS = {
    "verify": [],
    "doctor": [],
    "config": [],
    "backup": ["BACKUP"],
    "secrets list": [],
    "secrets rotate": [],
    "secrets retire": [],
    "blocks copy": ["database:", "file:"],
    "database copy": ["database:", "sqlite:///copy.db"],
    "users set-email": ["0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "a@example.org"],
    "chains check": [],
    "operators add": ["relayer-1"],
    "epoch renew": [],
    "operators list": [],
    "operators revoke": ["relayer-1"],
    "operators audit": [],
    "intents release": ["0x" + "0a" * 32],
    "intents watch": ["--once"],
    "runs prune": ["--older", "30d"],
    "webhooks add": ["https://hooks.example.org/"],
    "webhooks list": [],
    "webhooks show": ["mnh_" + "0a" * 16],
    "webhooks remove": ["mnh_" + "0a" * 16],
    "webhooks resume": ["mnh_" + "0a" * 16],
    "webhooks replay": ["mnh_" + "0a" * 16, "ZS0wYmFkY2FmZS0xMDA"],
    "webhooks rotate": ["mnh_" + "0a" * 16],
    "webhooks test": ["mnh_" + "0a" * 16],
    "tlog status": [],
    "tlog freeze": [],
    "tlog resume": [],
    "tlog begin": [],
    "tlog rotate": [],
}


def commands(group: click.Group, words: str = "") -> Iterator[tuple[str, click.Command]]:
    """The commands of a group and of its groups, each with its words. Those that are gone are left out."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{words}{name} ")
        elif not command.hidden:
            yield words + name, command
