"""The `muniment` command."""

from __future__ import annotations

from muniment.cli.main import main

if __name__ == "__main__":
    main()
