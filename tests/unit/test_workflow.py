"""Where the shipped workflow is, how it may be used, and that the wheel holds it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from bayesmesh import __version__
from bayesmesh.errors import ConfigError
from bayesmesh.workflow import PROFILES, REPOSITORY, SNAKEFILE, check_use, find_beside, is_profile_given
from wheels import build_wheel, differences

ROOT = Path(__file__).resolve().parents[2]
UNMOVED = SimpleNamespace(modify=lambda path: path)


def test_in_a_checkout_it_is_that_of_the_checkout() -> None:
    assert REPOSITORY == ROOT
    assert Path(SNAKEFILE).is_file()
    assert (PROFILES / "default" / "config.yaml").is_file()


def test_the_workflow_holds_the_version_of_the_package() -> None:
    assert re.findall(r'check_use\("([^"]+)"', Path(SNAKEFILE).read_text()) == [__version__]
    check_use(__version__, UNMOVED)
    with pytest.raises(ConfigError, match=r"the workflow has version 9\.0, and the package") as caught:
        check_use("9.0", UNMOVED)
    assert f"tag v{__version__}" in caught.value.remedy


def test_a_module_may_not_move_the_results() -> None:
    with pytest.raises(ConfigError, match="results/ would become x/results"):
        check_use(__version__, SimpleNamespace(modify=lambda path: f"x/{path}"))


def test_a_caption_is_found_from_a_repository_as_well() -> None:
    caption = ROOT / "src" / "bayesmesh" / "analyses" / "averaging" / "caption.rst"
    here = SimpleNamespace(get_path_or_uri=lambda secret_free: str(ROOT / "workflow" / "rules"))
    assert find_beside(caption, here) == str(caption)
    assert find_beside(None, here) is None
    there = SimpleNamespace(get_path_or_uri=lambda secret_free: "git+file:///repository/workflow/rules@v1")
    named = find_beside(caption, there)
    assert named is not None
    assert (ROOT / "workflow" / "rules" / named).resolve() == caption


def test_a_profile_of_the_users_choice_is_seen() -> None:
    assert is_profile_given(["snakemake", "--profile", "x"], {})
    assert is_profile_given(["snakemake", "--profile=x"], {})
    assert is_profile_given(["snakemake"], {"SNAKEMAKE_PROFILE": "x"})
    assert not is_profile_given(["snakemake", "--workflow-profile", "x", "digits"], {})


def test_the_wheel_holds_package_and_workflow(tmp_path: Path) -> None:
    assert differences(build_wheel(tmp_path / "copy"), tmp_path / "copy") == set()
