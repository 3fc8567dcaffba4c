"""The `muniment` command."""

from __future__ import annotations

import sys
from typing import Final

from muniment.cli.main import main as run_command

# The extra of commands that need another one than `server`.
_EXTRAS: Final = {"run": "relayer", "relayer": "relayer", "runs": "relayer"}


def main() -> None:
    """Run the command that the arguments name. One that serves or stores needs libraries of the extra `server`."""
    try:
        run_command()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "muniment":
            raise
        extra = _EXTRAS.get(next(iter(sys.argv[1:]), ""), "server")
        sys.exit(f"Error: this command needs the library {error.name}. Type: pip install 'muniment[{extra}]'")


if __name__ == "__main__":
    main()
