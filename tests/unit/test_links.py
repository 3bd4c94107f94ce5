# SPDX-License-Identifier: Apache-2.0
"""Links between the pages of the documentation lead to files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    lost = [
        link
        for link in links
        if "://" not in link and not (page.parent / link.partition("#")[0]).exists()
    ]
    assert lost == []


def test_the_readme_knows_every_page() -> None:
    text = (ROOT / "README.md").read_text()
    pages = {f"docs/{page.name}" for page in ROOT.glob("docs/*.md")}
    assert {page for page in pages if f"]({page})" not in text} == set()
