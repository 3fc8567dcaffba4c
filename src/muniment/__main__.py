"""The `muniment` command."""

from __future__ import annotations

from muniment.cli.command import main

if __name__ == "__main__":
    main()
