"""A call from Python gives the draws of the workflow, byte for byte, also after it was interrupted."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from notebook_cells import Cells
from workspace import FILMS, ROOT, Workspace, bring_programs, hashes, keep_programs

CALL = f"""
import json, os
import bayesmesh as bm
from bayesmesh.notebook.stages import ProgressBar

def call():
    blocks = json.loads({json.dumps(json.dumps(FILMS))})
    del blocks["title"]
    return bm.sample(blocks.pop("model"), blocks.pop("data"), blocks.pop("kernel"), name="called", cores=2, **blocks)

def interrupt(bar, states):
    # As soon as a chain group has drawn something.
    if states:
        raise KeyboardInterrupt

show, ProgressBar.show = ProgressBar.show, interrupt
try:
    call()
    print("was not interrupted")
except KeyboardInterrupt as stopped:
    print(stopped)
ProgressBar.show = show
result = call()
print(bm.verdict(result).verdict)
print(result.folder)
"""


def test_a_call_gives_the_draws_of_the_workflow(workspace: Workspace) -> None:
    # Data and compiled programs are there already, so that little but the call itself is run.
    (workspace.root / "call.py").write_text(CALL)
    done = workspace.run("call")
    assert done.returncode == 0, done.stderr
    stopped, verdict, folder = done.stdout.splitlines()
    assert "stopped during sample of 'called'" in stopped
    assert "committed draws are kept" in stopped.lower()
    assert verdict in ("pass", "warn", "fail")
    assert folder == "results/called"
    ours, theirs = (hashes(workspace.results / name / "posterior.zarr") for name in ("called", "films"))
    # The root names the experiment, and consolidated metadata holds its attributes.
    assert ours.pop("zarr.json") != theirs.pop("zarr.json")
    assert ours == theirs
    assert any("/c/" in name for name in ours)
    assert (workspace.results / "called" / "report.html").is_file()
    # Identity, statistics of the chains and environment.
    ours, theirs = ((workspace.results / n / "chains" / "group-000.json").read_text() for n in ("called", "films"))
    assert ours == theirs
    shutil.rmtree(workspace.results / "called")
    shutil.rmtree(workspace.results / "seals" / "called")


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user_environment: dict[str, str]) -> None:
    """In a process whose JAX has other devices than the jobs."""
    notebook = json.loads((ROOT / "docs" / "tutorials" / "notebook.ipynb").read_text(encoding="utf-8"))
    for name in os.environ.keys() - user_environment.keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("XLA_FLAGS", f"{user_environment['XLA_FLAGS']} --xla_force_host_platform_device_count=2")
    monkeypatch.chdir(tmp_path)
    cells = Cells("tutorial")
    bring_programs(tmp_path / "results")
    for cell in (each for each in notebook["cells"] if each["cell_type"] == "code"):
        assert not cell["outputs"], "clear the outputs: they would differ with every run"
        cells.run("".join(cell["source"]))
    keep_programs(tmp_path / "results")
