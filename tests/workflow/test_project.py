"""A project of one's own, with the wheel alone: written, run to its report, and deployed from a repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wheels import ROOT, build_wheel, install
from workspace import bring_programs, for_user, keep_programs

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
    written = installed(base / "my-study", "bayesmesh.cli", "new", "analysis", "tails")
    assert written.returncode == 0, written.stderr
    fewer = experiment.read_text().replace("warmup: 500\n  draws: 500", "warmup: 20\n  draws: 20")
    experiment.write_text(f"{fewer}analyses:\n  my_study.analyses.tails:TailsAnalysis: {{num_shown: 3}}\n")
    (base / "elsewhere").mkdir()
    (base / "my-study" / "results").symlink_to(base / "elsewhere")
    bring_programs(base / "elsewhere")
    return base / "my-study"


def test_a_new_project_runs_to_its_report(installed: Command, project: Path) -> None:
    done = installed(project, "snakemake", "--cores", "2")
    keep_programs(project / "results")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.parent / "elsewhere" / "growth" / "report.html").is_file()
    spec = next((project / "results" / "growth" / "specs").glob("sample-*.json")).read_text()
    assert "my_study.models.growth:Growth" in json.dumps(json.loads(spec))
    for verb in ("status", "verify"):
        assert installed(project, "bayesmesh.cli", verb).returncode == 0
    # From another folder, with the project's own configuration.
    again = installed(project.parent, "snakemake", "-n", "--cores", "2", "-s", "my-study/Snakefile", "-d", "my-study")
    assert again.returncode == 0, again.stderr
    assert "Nothing to be done" in again.stdout + again.stderr
    # So is an analysis of one's own, between the posterior and the page: its change runs these alone.
    results = project / "results" / "growth"
    assert (results / "tails" / "moments.csv").read_text().startswith("latent,mean,sd\nintercept,")
    page = (results / "report.html").read_text()
    assert '<h2 id="tails">Tails</h2>' in page
    assert "Moments of every latent" in page
    analysis = project / "my_study" / "analyses" / "tails.py"
    analysis.write_text(analysis.read_text().replace('"Moments of every latent"', '"Moments"'))
    edited = installed(project, "snakemake", "-n", "--cores", "2")
    counted = re.findall(r"^(\w+) +1$", edited.stdout + edited.stderr, re.M)
    assert {*counted} == {"tails", "report", "index", "all"}, edited.stdout + edited.stderr
    by_hand = installed(project, "bayesmesh.cli", "analyse", "--experiment", "growth", "--analysis", "tails")
    assert by_hand.returncode == 0, by_hand.stderr
    checked = installed(project, "bayesmesh.cli", "check", "my_study.analyses.tails:TailsAnalysis")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "on the posterior of experiment 'growth'" in checked.stdout
    # An own model is code of the project: its change samples again.
    model = project / "my_study" / "models" / "growth.py"
    model.write_text(model.read_text().replace("StudentT(4,", "StudentT(5,"))
    changed = installed(project, "snakemake", "-n", "--cores", "2")
    assert "Sample growth" in changed.stdout + changed.stderr


@pytest.mark.nightly
def test_snakedeploy_deploys_the_workflow_from_a_local_clone(user_environment: dict[str, str], tmp_path: Path) -> None:
    clone, deployed = tmp_path / "clone", tmp_path / "deployed"
    for folder in ("workflow", "config", "profiles"):
        shutil.copytree(ROOT / folder, clone / folder)
    name = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], [*name, "commit", "-qm", "One"], ["tag", "v1"]):
        subprocess.run(["git", "-C", clone, *words], check=True, capture_output=True)
    snakedeploy = Path(sys.executable).with_name("snakedeploy")
    subprocess.run([snakedeploy, "deploy-workflow", clone, deployed, "--tag", "v1"], check=True, capture_output=True)
    written = (deployed / "workflow" / "Snakefile").read_text()
    # As docs/how-to/project.md says.
    local = written.replace('"workflow/Snakefile"', f'"{clone}/workflow/Snakefile"')
    assert local != written
    (deployed / "workflow" / "Snakefile").write_text(local)
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "gaussian"],
        cwd=deployed, env=for_user(user_environment), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Sample gaussian" in done.stdout + done.stderr
