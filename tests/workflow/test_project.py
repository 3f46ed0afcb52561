"""A project of one's own, with the wheel alone: written, run to its report, and deployed from a repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from wheels import ROOT, build_wheel, install
from workspace import for_user

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, user_environment: dict[str, str]) -> Command:
    """Return a function that runs a command of an environment with the wheel in a folder."""
    base = tmp_path_factory.mktemp("installed")
    python = install(build_wheel(base / "copy"), base / "environment")
    variables = {**for_user(user_environment), "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]])}

    def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, "-m", *words], cwd=folder, env=variables, capture_output=True, text=True)

    return run


@pytest.fixture(scope="module")
def project(installed: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project as `init` writes it, but with less work; its results lie elsewhere."""
    base = tmp_path_factory.mktemp("projects")
    written = installed(base, "bayesmesh.cli", "init", "my-study")
    assert written.returncode == 0, written.stderr
    experiment = base / "my-study" / "config" / "experiments" / "growth.yaml"
    experiment.write_text(experiment.read_text().replace("warmup: 500\n  draws: 500", "warmup: 20\n  draws: 20"))
    (base / "elsewhere").mkdir()
    (base / "my-study" / "results").symlink_to(base / "elsewhere")
    return base / "my-study"


def test_a_new_project_runs_to_its_report(installed: Command, project: Path) -> None:
    done = installed(project, "snakemake", "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.parent / "elsewhere" / "growth" / "report.html").is_file()
    spec = next((project / "results" / "growth" / "specs").glob("sample-*.json")).read_text()
    assert "my_study.growth:Growth" in json.dumps(json.loads(spec))
    for verb in ("status", "verify"):
        assert installed(project, "bayesmesh.cli", verb).returncode == 0
    # From another folder, with the project's own configuration.
    again = installed(project.parent, "snakemake", "-n", "--cores", "2", "-s", "my-study/Snakefile", "-d", "my-study")
    assert again.returncode == 0, again.stderr
    assert "Nothing to be done" in again.stdout + again.stderr
    # An own model is code of the project: its change samples again.
    model = project / "my_study" / "growth.py"
    model.write_text(model.read_text().replace("StudentT(4,", "StudentT(5,"))
    changed = installed(project, "snakemake", "-n", "--cores", "2")
    assert "Sample growth" in changed.stdout + changed.stderr


DEPLOYED = """\
from snakemake.utils import min_version

min_version("6.10.0")


configfile: "config/config.yaml"


module bayesmesh:
    snakefile:
        "git+file://{repository}/workflow/Snakefile@v1"
    config:
        config


use rule * from bayesmesh
"""
"""As `snakedeploy deploy-workflow` writes it, with a local repository in the place of one at a host."""


def test_the_workflow_is_deployed_from_a_tag(installed: Command, project: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(ROOT / "workflow", repository / "workflow")
    name = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], [*name, "commit", "-qm", "One"], ["tag", "v1"]):
        subprocess.run(["git", "-C", repository, *words], check=True, capture_output=True)
    (project / "Snakefile").write_text(DEPLOYED.format(repository=repository))
    done = installed(project, "snakemake", "-n", "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Sample growth" in done.stdout + done.stderr
