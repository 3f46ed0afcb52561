"""The command line: exit codes, messages without traceback, logs."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayesmesh.cli import main
from bayesmesh.workflow.flow import STAGES

GOOD = "title: A test\ndata: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: hmc}\n"


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Take away the handlers that the command line sets up."""
    root, ours = logging.getLogger(), logging.getLogger("bayesmesh")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield
    for handler in [h for h in root.handlers if h not in handlers]:
        root.removeHandler(handler)
        handler.close()
    for handler in [h for h in handlers if h not in root.handlers]:
        root.addHandler(handler)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one experiment, and the current one."""
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [one]\n")
    (tmp_path / "config" / "experiments" / "one.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_lists_every_stage_with_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for stage in (*STAGES, "status", "doctor", "schema", "index"):
        assert re.search(rf"^    {stage}\s+\S+ \S+", text, re.M), stage


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["smaple"],
        ["sample"],
        ["report", "--spec", "x", "--experiment", "y"],
        ["sample", "--experiment", "x", "--cores", "0"],
        ["sample", "--experiment", "x", "--cores", "two"],
    ],
)
def test_a_wrong_call_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: bayesmesh" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["report", "--spec", "gone.json"], 2, "--spec gone.json: cannot be read"),
        (["report", "--spec", "{}"], 2, "the given JSON: not a stage specification"),
        (["report", "--experiment", "on"], 2, "no experiment 'on' in config/experiments: did you mean 'one'?"),
        (["compile", "--experiment", "one", "--later=gone.json"], 2, "--later gone.json: cannot be read"),
        (["sample", "--experiment", "one", "--group", "first"], 2, "--group first: not a chain group"),
        (["sample", "--experiment", "one", "--group", "group-001"], 2, "remedy: valid: group-000"),
        (["sample", "--experiment", "one", "--group", "group-0"], 2, "--group group-0: not a chain group"),
        (["diagnose", "--experiment", "one"], 5, "posterior.zarr: does not exist\n  remedy: run the stage that writes it, or let `snakemake"),
    ],
)  # fmt: skip
def test_an_error_of_a_user_is_a_message_and_an_exit_code(
    folder: Path, arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--log", "logs/job.log"]) == code
    printed = capsys.readouterr().err
    assert "error: " in printed
    assert said in printed
    assert "Traceback" not in printed
    assert said in (folder / "logs" / "job.log").read_text(), "the log says what the terminal said"


def test_the_command_starts_without_jax() -> None:
    code = "import sys; sys.argv = ['bayesmesh', 'status']\nfrom bayesmesh.cli import main\nmain()\nprint('jax' in sys.modules)"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
