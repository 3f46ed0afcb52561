"""The accelerator's programme: every piece names what exists, and none stops the others."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bayesmesh.reproduction.benchmarks.benchmark_command import list_benchmarks
from tool_modules import load_tool

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return load_tool("gpu_check")


def test_pieces_are_shorter_than_ten_minutes_and_name_what_exists(tool) -> None:
    assert tool.LIMIT_S < 600
    experiments = {path.stem for path in (ROOT / "config" / "experiments").glob("*.yaml")}
    for name, command in tool.PIECES.items():
        if command[0] == "python":
            assert (ROOT / command[1]).is_file()
        elif command[1] == "benchmark":
            assert command[2] in list_benchmarks(), name
        elif command[0] == "snakemake":
            assert command[-1] in {*experiments, "quickstart"}, name
            assert (ROOT / command[2]).is_dir()


def test_a_piece_that_fails_or_lasts_too_long_does_not_stop_the_others(tool, tmp_path: Path) -> None:
    def python(code: str) -> tuple[str, ...]:
        return sys.executable, "-c", code

    pieces = {
        "wrong": python("raise SystemExit(3)"),
        "long": python("import time; time.sleep(15)"),
        "right": python("print('done')"),
    }
    assert tool.main(["--out", str(tmp_path), "--limit", "3"], pieces) == 1
    with (tmp_path / "gpu-check.csv").open() as file:
        ended = {row["piece"]: row["ended"] for row in csv.DictReader(file)}
    assert ended == {"wrong": "exit code 3", "long": "time limit", "right": "ok"}
    assert (tmp_path / "right.log").read_text() == "done\n"
    assert tool.main(["--out", str(tmp_path), "--only", "right"], pieces) == 0
