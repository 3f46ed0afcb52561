"""The accelerator's programme: every piece names what exists, and none stops the others."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from bayesmesh_reproduction.benchmarks.command import list_benchmarks
from tool_modules import load_tool

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return load_tool("gpu_check")


def test_pieces_are_shorter_than_ten_minutes_and_name_what_exists(tool) -> None:
    assert tool.LIMIT_S < 600
    experiments = {path.stem for path in (ROOT / "config" / "experiments").glob("*.yaml")}
    for name, command in tool.PIECES.items():
        if "benchmark" in command:
            assert command[-1] in list_benchmarks(), name
        elif command[0] == "python":
            assert (ROOT / command[1]).is_file()
        elif command[0] == "snakemake":
            assert command[-1] in {*experiments, "quickstart"}, name
            assert (ROOT / command[2]).is_dir()
