"""What tools/release_check.py finds; the files of the catalogue, which a release holds."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from bayesmesh.config.loading import load_configuration
from tool_modules import load_tool

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """Import the tool, which is not in a package."""
    return load_tool("release_check")


@pytest.fixture
def copy(tmp_path: Path, tool: ModuleType) -> Path:
    for name in (*tool.VERSIONS, "CHANGELOG.md", *(f"envs/{lock}.txt" for lock in tool.LOCKS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_versions_and_locks_of_this_checkout_agree(tool: ModuleType, copy: Path) -> None:
    assert tool.check_versions(copy) == ""
    assert tool.check_locks(copy) == ""


def test_the_files_of_the_catalogue_are_there() -> None:
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert set(usage) == {"mandatory-flags", "software-stack-deployment", "report"}
    run, experiments, *_ = load_configuration(ROOT / ".test" / "config")
    assert run.experiments == sorted(experiments)
    assert (ROOT / "config" / "README.md").is_file()
