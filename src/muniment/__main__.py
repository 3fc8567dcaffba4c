"""The `muniment` command."""

from __future__ import annotations

import sys

from muniment.cli.main import main as run_command


def main() -> None:
    """Run the command that the arguments name. One that serves or stores needs libraries of the extra `server`."""
    try:
        run_command()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "muniment":
            raise
        sys.exit(f"Error: this command needs the library {error.name}. Type: pip install 'muniment[server]'")


if __name__ == "__main__":
    main()
