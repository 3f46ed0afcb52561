"""Each of some 180 mistakes is one sentence with file or key and remedy; nothing that was computed before is touched."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import jax
import pytest
import yaml

from bad_inputs import ALL, EXPERIMENT, GOOD, Bad
from bayesmesh.cli import main
from bayesmesh.config.config_loading import load_all
from bayesmesh.config.config_registry import forget_files
from bayesmesh.errors import UserError


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project whose experiment is prepared for sampling."""
    folder = tmp_path_factory.mktemp("finished")
    files = {
        "config/config.yaml": "experiments: [mine]\n",
        "config/experiments/mine.yaml": yaml.safe_dump(EXPERIMENT),
        "data/good.csv": GOOD,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert [main([verb, "--experiment", "mine"]) for verb in ("fetch", "shard")] == [0, 0]
    return folder


@pytest.fixture
def project(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the project as the current folder, with devices and settings of JAX left as they are."""
    folder = tmp_path / "project"
    shutil.copytree(finished, folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr("bayesmesh.stages.compile.configure_jax", lambda *_: None)
    jax.config.update("jax_enable_x64", True)
    # Modules of one name, in another folder each time.
    forget_files()
    sys.modules.pop("mine_code", None)
    return folder


def values_in(results: Path) -> dict[str, str]:
    """Return the digests of the files of datasets, and no times of jobs."""
    files = [path for part in ("records", "shards") for path in results.rglob(f"{part}*/**/*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def refuse(case: Bad) -> int:
    """Run the stages of a case until one refuses, and return its exit code."""
    if case.verbs == ("all",):
        try:
            load_all(Path("config"))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        return 0
    return next((code for verb in case.verbs if (code := main([verb, "--experiment", "mine"]))), 0)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_a_mistake_is_one_sentence_with_its_remedy(case: Bad, project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    case.write(project)
    before = values_in(project / "results")
    assert len(before) > 4
    code = refuse(case)
    output = capfd.readouterr().err
    assert code in (2, 3), output
    said = output[output.index("error: ") :].replace(f"{project}/", "")
    for part in (*case.said, "remedy: "):
        assert part in said
    assert "Traceback" not in output
    after = values_in(project / "results")
    assert {name: after.get(name) for name in before} == before, "what was computed is lost"


def test_the_cases_have_names_of_their_own() -> None:
    assert len({case.name for case in ALL}) == len(ALL) >= 100
