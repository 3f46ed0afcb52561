"""The verb `benchmark`: finding files, gates on ratios, settings from the configuration."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayesmesh.errors import ConfigError
from bayesmesh_reproduction.__main__ import main
from bayesmesh_reproduction.benchmarks.command import list_benchmarks, parse_benchmarks
from bayesmesh_reproduction.benchmarks.harness import Measurement, Options, Outcome, Ratio
from bayesmesh_reproduction.layout import BenchmarkLayout

GOOD = "title: A test\ndata: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: hmc}\n"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Options]]:
    """A folder with a configuration, and a benchmark `metropolis` that measures nothing and is half as fast."""
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "reproduction.yaml").write_text("benchmarks: {seconds_limit: 7}\n")
    (tmp_path / "config" / "experiments" / "one.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    seen: list[Options] = []

    def run(options: Options) -> Outcome:
        seen.append(options)
        rows = [Measurement({"n": 1}, "ours", seconds=[1.0]).row()]
        return Outcome(rows, [Ratio("n 1", "ours", "theirs", 0.5, 0.4, 0.6, 3, 1.0)])

    fake = types.ModuleType("bayesmesh_reproduction.benchmarks.metropolis")
    fake.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bayesmesh_reproduction.benchmarks.metropolis", fake)
    root, ours = logging.getLogger(), logging.getLogger("bayesmesh")
    before, levels = list(root.handlers), (root.level, ours.level)
    yield seen
    for handler in [h for h in root.handlers if h not in before]:
        root.removeHandler(handler)
        handler.close()
    for handler in [h for h in before if h not in root.handlers]:
        root.addHandler(handler)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def test_a_ratio_below_its_gate_changes_the_exit_code_only_with_gate(
    asked: list[Options], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["benchmark", "metropolis"]) == 0
    assert main(["benchmark", "metropolis", "--gate", "--quick", "--seconds-limit", "3"]) == 1
    assert [(o.is_quick, o.seconds_limit) for o in asked] == [(False, 7.0), (True, 3.0)]
    printed = capsys.readouterr()
    assert "n 1: ours 0.5 (0.4 to 0.6) x theirs, failed: at least 1" in printed.out
    assert "a ratio is below its gate" in printed.err
    assert Path("results/benchmarks/metropolis.csv").exists()
    assert [o.layout.is_trial for o in asked] == [False, True], "a trial does not replace the results of a full run"
    assert Path("results/benchmarks/metropolis-quick.csv").exists()


def test_the_workflow_passes_the_settings(asked: list[Options], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "metropolis", "--settings", '{"quick": true, "seconds_limit": 5.0}']) == 0
    assert [o._replace(journal=None) for o in asked] == [Options(True, 5.0, BenchmarkLayout(Path("results")))]
    assert main(["benchmark", "metropolis", "--settings", '{"quikc": true}']) == 2
    assert "--settings: unknown key 'quikc'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["nothing"], ["metropolis", "--seconds-limit", "0"], ["metropolis", "--cores", "0"]])
def test_a_wrong_call_is_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["benchmark", *words])
    assert caught.value.code == 2
    capsys.readouterr()


def test_a_case_that_is_not_there_is_refused(asked: list[Options], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "metropolis", "--only", "mnist"]) == 2
    assert "no case 'mnist'" in capsys.readouterr().err
    assert not asked
    sys.modules["bayesmesh_reproduction.benchmarks.metropolis"].list_cases = lambda: ["mnist", "films"]  # type: ignore[attr-defined]
    assert main(["benchmark", "metropolis", "--only", "mnist"]) == 0
    assert [o.only for o in asked] == [("mnist",)]
    assert Path("results/benchmarks/metropolis-only.csv").exists()
    assert not list(Path("results/benchmarks").glob("*.jsonl"))


def test_writing_asks_for_its_experiment(asked: list[Options], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "writing"]) == 2
    assert "--experiment NAME" in capsys.readouterr().err


def test_the_page_shows_the_benchmarks_that_have_run(asked: list[Options]) -> None:
    assert main(["benchmark", "metropolis"]) == 0
    assert main(["benchmark", "page"]) == 0
    text = Path("results/benchmarks/index.html").read_text(encoding="utf-8")
    assert 'id="metropolis"' in text
    assert "failed: at least 1" in text


def test_benchmarks_are_found_by_their_files() -> None:
    found = list_benchmarks()
    assert {"metropolis", "primer", "compile_scaling"} <= found.keys()
    assert not {"harness", "worker", "table", "command", "writing"} & found.keys()
    for name, about in found.items():
        assert about, f"{name}: its docstring describes the measurement"
    with pytest.raises(ConfigError, match="seconds_limit"):
        parse_benchmarks('{"seconds_limit": -1}')
