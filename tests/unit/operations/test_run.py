"""`bayesmesh run` is Snakemake with the same arguments, and starts the server of forks only where jobs will run here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bayesmesh.cli import main
from bayesmesh.operations.run import needs_jobs, refuse_missing_files

RUN = "import sys; from bayesmesh.cli import main; main(['run', *sys.argv[1:]])"
SNAKEFILE = """
import sys
rule all:
    input: "made"
    shell: "exit 3"
rule first:
    output: "made"
    params: "text", 3
    shell: "touch {output}"
onerror: print(sys.argv, "with" if "pandas.core" in sys.modules else "without", "pandas")
"""
"""The first rule has ended, and been recorded, when the last one fails."""
LATE = """
import sys
from bayesmesh.operations.run import import_late
import_late("xmlrpc")
import xmlrpc
assert "__path__" not in vars(xmlrpc)
# As `inspect.getmodule` does with every module that is loaded.
assert hasattr(xmlrpc, "__file__")
assert sys.modules["xmlrpc"] is xmlrpc
import xmlrpc.client
assert xmlrpc.client.ServerProxy and vars(sys.modules["xmlrpc"])["__path__"]
import_late("xmlrpc")
assert "__path__" in vars(sys.modules["xmlrpc"])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the experiments `old`, which has a page, and `new`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    for name in ("old", "new"):
        (tmp_path / "config" / "experiments" / f"{name}.yaml").touch()
    (tmp_path / "results" / "old").mkdir(parents=True)
    (tmp_path / "results" / "old" / "report.html").touch()
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["old"],
            ["-n", "new"],
            ["--dry-run", "new"],
            ["--unlock"],
            ["--list-rules"],
            ["--report=x.html"],
            ["--help"],
        ),
        *(
            ["--profile", "profiles/slurm-cpu", "new"],
            ["-e", "slurm", "new"],
            ["--executor=slurm"],
            ["-eslurm"],
            ["--mode", "remote"],
        ),
    ],
)
def test_no_server_is_started_that_nothing_would_use(folder: Path, words: list[str]) -> None:
    assert not needs_jobs(words, {})


def test_arguments_and_exit_codes_are_those_of_snakemake(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    command = [sys.executable, "-c", RUN, "--cores", "1", "--quiet", "all"]
    environment = {k: v for k, v in os.environ.items() if k != "SNAKEMAKE_PROFILE"}
    done = subprocess.run(
        command, cwd=tmp_path, env={**environment, "BAYESMESH_FORK_SERVER": "off"}, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "['snakemake', '--cores', '1', '--quiet', 'all'] without pandas" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["-n", "--configfile", "none.yaml"], "--configfile none.yaml"),
        (["--configfile=none.yaml", "new"], "--configfile none.yaml"),
        (["--configfiles", "config/experiments/new.yaml", "old", "-n"], "--configfiles old"),
        (["--configf", "config"], "--configf config"),
    ],
)
def test_a_configuration_file_that_is_not_there_is_named(
    folder: Path, words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {named}: no such file\n  remedy: leave the option out")
    refuse_missing_files(["--configfile", "config/experiments/new.yaml", "--config", "x=1"])


def test_a_late_module_is_imported_once_it_is_used() -> None:
    subprocess.run([sys.executable, "-c", LATE], check=True)
