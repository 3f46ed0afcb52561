"""Ten mistakes, from the command to the message: one sentence with file or key and remedy; earlier results stay as they were."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import pytest
import yaml

from bayesmesh.cli import main
from bayesmesh.config.registry import forget_files

EXPERIMENT: dict[str, Any] = {
    "title": "Mine",
    "data": {"source": "table", "files": "data/good.csv"},
    "model": {"name": "glm", "formula": "y ~ x + town", "family": "normal"},
    "kernel": {"name": "hmc"},
    "sampling": {"chains": 2, "warmup": 5, "draws": 5},
    "compute": {"platform": "cpu", "mesh": {"chain": 1, "data": 1}},
}
"""An experiment that works, on `GOOD`."""

GOOD = "x,y,town\n1.5,1,Bonn\n2.5,0,Aachen\n3.5,1,Bonn\n4.0,1,Aachen\n"

Content = str | bytes | Callable[[Path], object]
"""Text or bytes of a file, or a function that writes it."""


@dataclasses.dataclass(frozen=True)
class Bad:
    """One mistake.

    Attributes:
        name: of the case.
        said: parts of the refusal: file, key or row, and what to do.
        keys: top-level keys of the experiment that differ.
        text: the experiment's file, where it cannot be written as keys.
        files: path below the project -> content.
        verbs: stages that are run until one refuses.
    """

    name: str
    said: tuple[str, ...]
    keys: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    text: str | bytes | None = None
    files: Mapping[str, Content] = dataclasses.field(default_factory=dict)
    verbs: tuple[str, ...] = ("fetch", "shard")

    def write(self, folder: Path) -> None:
        """Write the mistake into a project."""
        text = self.text if self.text is not None else yaml.safe_dump({**EXPERIMENT, **self.keys}, sort_keys=False)
        for name, content in {"config/experiments/mine.yaml": text, **self.files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if callable(content):
                content(path)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)


def _key(block: str, **changes: Any) -> dict[str, Any]:
    """Return a block of the experiment with changes; None removes a key."""
    changed = {**EXPERIMENT.get(block, {}), **changes}
    return {block: {key: value for key, value in changed.items() if value is not None}}


def _text(found: str, instead: str) -> str:
    """Return the text of the experiment with a change."""
    text = yaml.safe_dump(EXPERIMENT, sort_keys=False)
    assert found in text
    return text.replace(found, instead, 1)


def _table(content: Content, ending: str = "csv", **options: Any) -> dict[str, Any]:
    """Return a data block that reads a file, and the file."""
    name = f"data/bad.{ending}"
    return {"keys": _key("data", files=name, **options), "files": {name: content}}


EXPERIMENTS_FILE = "config/experiments/mine.yaml"
MODEL = """
from bayesmesh.config.settings import Settings
from bayesmesh.models.base import Model
class Options(Settings):
    scale: float = 1.0
class Mine(Model):
    pretty_name = "Mine"
    offers = ()
"""

ALL = (
    Bad("a tab", (f"{EXPERIMENTS_FILE}, line 3",), text=_text("  source:", "\tsource:")),
    Bad("a misspelt key", ("unknown key 'sampling.drwas'", "did you mean 'draws'"), _key("sampling", drwas=5)),
    Bad("an experiment without a file", ("config/config.yaml", "no experiment 'mien'", "did you mean 'mine'"), files={"config/config.yaml": "experiments: [mien]\n"}),
    Bad("a sweep over an unknown key", ("member 'mine-prior_scal-1'", "unknown key 'model.prior_scal'"), {"sweep": {"grid": {"model.prior_scal": [1, 2]}}}),
    Bad("a file that is not there", ("key 'data.files'", "data/none.csv"), _key("data", files="data/none.csv")),
    Bad("a word among numbers", ("data/bad.csv", "row 3", "x", "three"), **_table(GOOD.replace("3.5", "three"))),
    Bad("a split by an unknown field", ("key 'data.held_out_groups'", "did you mean 'town'"), _key("data", held_out_fraction=0.5, held_out_groups="towns")),
    Bad("an unknown term", ("key 'model.formula'", "did you mean 'town'"), _key("model", formula="y ~ x + towns"), verbs=("compile",)),
    Bad("a module that raises", ("mine_code.py, line 2", "RuntimeError: no"), {"model": {"name": "mine_code:Mine"}},
        files={"mine_code.py": f"\nraise RuntimeError('no')\n{MODEL}"}, verbs=("compile",)),
    Bad("a module that is not there", ("key 'model.name'", "nowhere"), {"model": {"name": "nowhere.models:Mine"}}, verbs=("compile",)),
)  # fmt: skip
"""One of each kind: what a validator rejects is tested where it is."""


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
    monkeypatch.setattr("bayesmesh.sampling.density.mesh.configure_jax", lambda *_: None)
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
