"""The tables of rules in ``test_ds4_section_*.py`` name tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.glob("test_ds4_section_*.py"))


def test_sections_2_to_7_have_a_table() -> None:
    assert [re.findall(r"section_(\d)", path.name) for path in FILES] == [[n] for n in "234567"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_table_names_the_tests_of_its_file(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    rows = re.findall(r"^\| .* \| (.*) \|$", ast.get_docstring(tree) or "", re.MULTILINE)
    named = {row for row in rows if row.startswith("test_")}
    here = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert named <= here
    assert len(named) > len([name for name in here if name.startswith("test_")]) // 2
    for section in {row.removeprefix("section ") for row in rows if row.startswith("section ")}:
        assert any([f"section_{section}_" in other.name for other in FILES])
