"""Variables of the environment that have the prefix of this program, and that nothing reads: most are typing errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from typing import Final

from muniment.service.running.settings import PREFIX, Settings, variable

# The variables that commands read beside the settings.
OF_COMMANDS: Final = (
    "MUNIMENT_URL", "MUNIMENT_PROFILE", "MUNIMENT_WALLET", "MUNIMENT_PRIVATE_KEY", "MUNIMENT_PASSWORD",
    "MUNIMENT_API_KEY", "MUNIMENT_OPERATOR_KEY", "MUNIMENT_KUBO_AUTHORIZATION",
)  # fmt: skip
# Of these, a variable with this suffix names a file with the value; the same is true of each setting.
_FILE: Final = "_FILE"
_WITH_FILE: Final = ("MUNIMENT_PRIVATE_KEY", "MUNIMENT_PASSWORD", "MUNIMENT_KUBO_AUTHORIZATION")
# Kubernetes gives containers such variables for a service with the name `muniment` (kubernetes.io/docs, "Service",
# Discovering services: Environment variables).
_OF_KUBERNETES: Final = re.compile(r"MUNIMENT_(\w+_)?(SERVICE_(HOST|PORT)|PORT_[0-9]+_(TCP|UDP|SCTP))(_\w+)?")
# Below this likeness, from 0 to 1, a name is no typing error of another.
_LIKENESS_MIN: Final = 0.8


def known_variables() -> frozenset[str]:
    """The variables that this program reads."""
    settings = [variable(each.name) for each in fields(Settings)]
    return frozenset((*settings, *OF_COMMANDS, *(f"{each}{_FILE}" for each in (*settings, *_WITH_FILE))))


def unread_variables(names: Iterable[str]) -> list[str]:
    """Those of `names` that begin like a variable of this program and are none, each with the name that it may mean."""
    known = known_variables()
    endings = sorted(name.removeprefix(PREFIX) for name in known)
    found: list[str] = []
    for name in sorted(names):
        is_ours = name.upper().startswith(PREFIX)
        if not is_ours or name in known or _OF_KUBERNETES.fullmatch(name):
            continue
        from difflib import get_close_matches  # noqa: PLC0415 - rarely needed, and a fifth of a megabyte

        meant = get_close_matches(name[len(PREFIX) :].upper(), endings, n=1, cutoff=_LIKENESS_MIN)
        found.append(f"{name} ({PREFIX}{meant[0]}?)" if meant else name)
    return found
