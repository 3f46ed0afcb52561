"""`bayesmesh run` is Snakemake with the same arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bayesmesh.cli import main
from bayesmesh.operations.run import refuse_missing_files

RUN = "import sys; from bayesmesh.cli import main; main(['run', *sys.argv[1:]])"
SNAKEFILE = """
import sys
rule all:
    shell: "exit 3"
onerror: print(sys.argv)
"""


def test_arguments_and_exit_codes_are_those_of_snakemake(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    command = [sys.executable, "-c", RUN, "--cores", "1", "--quiet", "all"]
    environment = {k: v for k, v in os.environ.items() if k != "SNAKEMAKE_PROFILE"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "['snakemake', '--cores', '1', '--quiet', 'all']" in done.stdout.splitlines()


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "experiments" / "new.yaml").touch()
    assert main(["run", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {named}: no such file\n  remedy: leave the option out")
    refuse_missing_files(["--configfile", "config/experiments/new.yaml", "--config", "x=1"])
