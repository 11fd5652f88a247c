"""The pages of the repository: every README.md, read by the titles of its sections, wherever they stand."""

from __future__ import annotations

import re
from pathlib import Path

from . import tree

PAGES = {path: path.read_text(encoding="utf-8") for path in tree.files(".md") if path.name == "README.md"}


def page(title: str) -> str:
    """The text of the one section of that title."""
    pattern = re.compile(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    found = [match[1] for text in PAGES.values() for match in pattern.finditer(text)]
    assert len(found) == 1, f"{len(found)} sections of all README.md are called {title!r}"
    return found[0]


def rows(title: str, heading: str | None = None) -> list[list[str]]:
    """Cells of rows that start with code: of the section, or of its table whose first heading is given."""
    text = page(title)
    if heading is not None:
        table = re.search(rf"^\| {re.escape(heading)} \|.*\n\|[ -|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
        assert table, f"section {title!r} has no table of {heading!r}"
        text = table[1]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def code(text: str) -> list[str]:
    """What stands in backquotes."""
    return re.findall(r"`([^`]+)`", text)


def examples(title: str, language: str) -> list[str]:
    """The section's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", page(title), re.DOTALL)


def command(marker: str) -> str:
    """The command of the first page after its marker."""
    text = PAGES[tree.ROOT / "README.md"]
    found = re.search(rf"<!-- {re.escape(marker)} -->\n```bash\n(.*?)\n```", text, re.DOTALL)
    assert found, f"README.md has no command after {marker!r}"
    return found[1]


def anchors(path: Path) -> set[str]:
    """What a link may name after `#` on that page."""
    titles = re.findall(r"^#+ (.+)$", PAGES[path], re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
