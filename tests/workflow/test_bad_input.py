"""What a user reads when something is wrong: file, key and remedy; no traceback, and nothing else is touched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PLAIN = "title: More\ndata: {source: gaussian, num_rows: 20}\nmodel: {name: gaussian}\nkernel: {name: hmc}\n"


def _hashes(workspace: Any) -> dict[str, str]:
    """Contents of what the finished experiments left."""
    folders = [workspace.results / name for name in ("digits", "films")]
    files = [workspace.results / "index.html", *(p for f in folders for p in f.rglob("*") if p.is_file())]
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture
def untouched(workspace: Any) -> Iterator[None]:
    """Hold what the finished experiments left to what it was."""
    before = _hashes(workspace)
    yield
    assert _hashes(workspace) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLAIN + "sampling: {drwas: 10}\n", ["more.yaml: unknown key 'sampling.drwas'", "did you mean 'draws'?"]),
        (PLAIN.replace("name: gaussian", "name: gausian"), ["more.yaml: key 'model.name': unknown model 'gausian'", "did you mean 'gaussian'?"]),
        ("__use_yte__: true\ntitle: ?open('pwned', 'w')\n", ["more.yaml, line 1: the key '__use_yte__' is not accepted"]),
        (PLAIN.replace("name: gaussian", "name: 'a b; touch pwned:x'"), ["more.yaml: key 'model.name'"]),
        (PLAIN + "averaging: {}\n", ["more.yaml: key 'averaging': not with source 'gaussian'", "source: digits"]),
        (PLAIN.replace("name: gaussian", "name: 'nowhere.models:Mine'"), ["more.yaml: key 'model.name': unknown model", "nowhere.models"]),
    ],
    ids=["key", "model", "code", "shell", "offers", "external"],
)  # fmt: skip
@pytest.mark.usefixtures("untouched")
def test_a_wrong_configuration_starts_nothing(workspace: Any, text: str, said: list[str]) -> None:
    before = set(workspace.root.rglob("*"))
    with workspace.changed(workspace.experiment("more"), text):
        done = workspace.snakemake("--cores", "2", "more")
    output = done.stdout + done.stderr
    assert done.returncode == 2, output
    for part in said:
        assert part in done.stderr
    assert "Traceback" not in output
    assert "Error in" not in output
    assert "Job stats" not in output, "jobs were planned"
    created = {p for p in set(workspace.root.rglob("*")) - before if ".snakemake" not in p.parts}
    assert {p for p in created if "__pycache__" not in p.parts} == set()


@pytest.mark.usefixtures("untouched")
def test_a_wrong_file_stops_no_other_experiment(workspace: Any) -> None:
    with workspace.changed(workspace.experiment("more"), PLAIN + "sampling: {drwas: 10}\n"):
        done = workspace.snakemake("-n", "--cores", "2", "films", "quickstart")
        page = workspace.snakemake("-n", "--cores", "2", "results/more/report.html")
        with workspace.changed(workspace.root / "config" / "config.yaml", "experiments: [films, more]\n"):
            listed = workspace.snakemake("-n", "--cores", "2")
    unknown = workspace.snakemake("-n", "--cores", "2", "flims")
    assert unknown.returncode == 1, unknown.stderr
    assert "note: no experiment, sweep or rule 'flims'; did you mean 'films'?" in unknown.stderr
    assert done.returncode == 0, done.stderr
    assert "warning: left out: config/experiments/more.yaml: unknown key 'sampling.drwas'" in done.stderr
    for refused in (page, listed):
        assert refused.returncode == 2, refused.stderr
        assert "error: config/experiments/more.yaml: unknown key 'sampling.drwas'" in refused.stderr
        assert refused.stderr.count("unknown key 'sampling.drwas'") == 1
        assert "Traceback" not in refused.stdout + refused.stderr


MNIST = "title: More\ndata: {source: mnist}\nmodel: {name: softmax_regression}\nkernel: {name: hmc}\n"
CLOSED = {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}


@pytest.mark.usefixtures("untouched")
def test_a_mirror_with_a_damaged_file(workspace: Any, tmp_path: Path) -> None:
    file = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    file.parent.mkdir()
    file.write_bytes(b"\x1f\x8b damaged")
    with workspace.changed(workspace.experiment("more"), MNIST):
        done = workspace.snakemake("--cores", "2", "more", BAYESMESH_MIRROR=str(tmp_path), **CLOSED)
    assert done.returncode != 0
    assert f"{file}: truncated: expected 9912422 bytes, found 10" in done.stderr
    named = done.stderr.index("failed: fetch of more (config/experiments/more.yaml)\n")
    assert f"{file}: truncated: expected 9912422 bytes, found 10" in done.stderr[named:]
    assert "Logfile" not in done.stderr, "the error would be there three times"
    assert "remedy: get https://storage.googleapis.com" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not list(workspace.results.glob("data/mnist-*/records/*"))
