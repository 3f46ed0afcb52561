"""Code that is edited while the workflow runs is not run in the name of what was planned."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

EDIT = """
import atexit, pathlib, sys

if {verb!r} in sys.orig_argv:
    path = pathlib.Path({path!r})
    before = path.read_text()
    path.write_text(before + "\\nEDITED = True\\n")
    if {is_put_back!r}:
        atexit.register(path.write_text, before)
"""
"""Runs at the start of every Python that finds it: edits a file when the job of a verb starts."""


def _editing(folder: Path, workspace: Any, **how: object) -> dict[str, str]:
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(EDIT.format(**how))
    return {"PYTHONPATH": os.pathsep.join([str(folder), workspace.environment["PYTHONPATH"]])}


def test_an_edit_is_refused_and_the_next_run_works(workspace: Any, tmp_path: Path) -> None:
    source = workspace.root / "src" / "bayesmesh"
    ranks, page = source / "diagnostics" / "ranks.py", source / "report" / "report_page.py"
    seal = workspace.results / "seals" / "films" / "diagnose.json"
    before, text = seal.read_bytes(), page.read_text()

    workspace.set("films", "gates.ess_bulk", 40)
    put_back = _editing(tmp_path / "first", workspace, verb="diagnose", path=str(ranks), is_put_back=True)
    done = workspace.snakemake("--cores", "2", "films", **put_back)
    assert done.returncode == 1
    assert f"edited last was {ranks}" in done.stderr
    assert seal.read_bytes() == before

    between = _editing(tmp_path / "second", workspace, verb="diagnose", path=str(page), is_put_back=False)
    done = workspace.snakemake("--cores", "2", "films", **between)
    assert done.returncode == 1
    assert f"edited last was {page}" in done.stderr
    assert seal.read_bytes() != before, "what had been refused ran"

    assert workspace.planned("films") == ["Report films"]
    assert workspace.snakemake("--cores", "2", "films").returncode == 0
    assert workspace.planned("films") == []
    page.write_text(text)
