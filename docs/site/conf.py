"""How Sphinx makes a site of the documentation (`make docs`).

The tree of the sources is the repository, so a relative link leads to the same page on GitHub and on the site.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

_ROOT = Path(__file__).parents[2]
_SECTION = re.compile(r"^## ", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)\.md\)")

project = "Muniment"
release = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]

extensions = ["myst_parser"]
myst_heading_anchors = 6  # GitHub gives an anchor to headings of every level

root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "bench/*.md", "bench/results/*.md"]
# Folders that have none of these pages are not walked: some have a hundred thousand files.
exclude_patterns = [*(each.name for each in _ROOT.glob("*/") if each.name not in {"docs", "bench"}), "bench/peers"]

html_theme = "furo"
html_title = f"Muniment {release}"
html_extra_path = ["index.html"]  # sends the reader of the top folder to root_doc
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_use_index = False
highlight_language = "text"  # of blocks that name no language


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _add_contents)
    app.add_lexer("mermaid", TextLexer)  # GitHub draws these blocks, by a script that is too large for one drawing


def _add_contents(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add the contents that the sidebar shows: an index has the links, in its sections."""
    if Path(page).name == "index":
        source[0] += "".join(_contents(section) for section in _SECTION.split(source[0]))


def _contents(section: str) -> str:
    title = "" if section.startswith("#") else section.partition("\n")[0]
    options = [":hidden:", *([f":caption: {title}"] if title else [])]
    return "\n".join(["", "```{toctree}", *options, "", *_LINK.findall(section), "```", ""])
