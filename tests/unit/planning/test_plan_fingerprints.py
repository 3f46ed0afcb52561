"""An edit changes the fingerprints of the stages that run the edited code, and of no others."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bayesmesh.config import config_blocks, config_registry, config_source_code
from bayesmesh.config.experiment import experiment_class
from bayesmesh.planning import plan_fingerprints, plan_model_code
from bayesmesh.planning.plan_fingerprints import stage_fingerprint
from bayesmesh.planning.plan_flow import STAGES
from bayesmesh.planning.plan_specs import make_spec

OWN = {
    "own/__init__.py": "",
    "own/model.py": """
from pydantic import Field

from bayesmesh.config.settings import Settings
from bayesmesh.models.base import Model
from own.parts import scale


class Options(Settings):
    pass


class Own(Model):
    pretty_name = "Own"
    offers = ("averaging",)

    def prior(self, data_spec):
        return scale()  # a comment

    def log_likelihood(self, latents, rows):
        return rows["x"]

    def predict(self, latents, inputs):
        return inputs["x"]

    def outcome(self, rows):
        return rows["x"]

    def summaries(self, latents, rows):
        return {"a": latents["a"]}
""",
    "own/parts.py": "def scale():\n    return 2\n",
    "own/unused.py": "X = 1\n",
}

RUN = [stage for stage in STAGES if stage not in ("neighbours", "rating_scores", "recommend")]
MODEL = {"compile", "sample", "assemble", "average", "evidence", "k_fold", "loo", "predictive_checks", "sensitivity"}
LATER = {"assemble", "average", "evidence", "k_fold", "loo", "predictive_checks", "sensitivity"}
MONITORED = {"sample", *LATER}


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., set[str]]]:
    """A function of an edit (file, old text, new text) to the stages whose fingerprints change.

    The files are a copy of the package, and a package of a user. No edit changes an import, so these are read once.
    """
    root = tmp_path_factory.mktemp("project")
    package = root / "bayesmesh"
    shutil.copytree(config_source_code.PACKAGE_ROOT, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in OWN.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)

    @functools.cache
    def before(stop: bool) -> dict[str, str]:
        return prints(stop)

    def prints(stop: bool) -> dict[str, str]:
        config: dict[str, Any] = {
            "title": "Some", "data": {"source": "digits"}, "model": {"name": "own.model:Own"}, "kernel": {"name": "hmc"},
            "averaging": {}, "divergent_draws": {}, "evidence": {}, "k_fold": {}, "loo": {}, "predictive_checks": {}, "sensitivity": {}, "sampling": {"stop": {"min_ess_bulk": 400.0}} if stop else {},
        }  # fmt: skip
        some = experiment_class().model_validate(config)
        return {stage: stage_fingerprint(make_spec(stage, "some", some, "results")) for stage in RUN}

    def changed(file: str, old: str, new: str, *, stop: bool = False) -> set[str]:
        path = root / file if file.startswith("own/") else package / file
        first, text = before(stop), path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        try:
            after = prints(stop)
        finally:
            path.write_text(text)
        return {stage for stage in RUN if first[stage] != after[stage]}

    with pytest.MonkeyPatch.context() as patch:
        for module in (config_source_code, plan_fingerprints, plan_model_code):
            patch.setattr(module, "PACKAGE_ROOT", package)
        patch.setattr(config_registry, "_ROOT", package)
        patch.setattr(config_blocks, "_METRICS", package / "kernels" / "hamiltonian" / "metrics")
        patch.setattr(plan_model_code, "_MODELS", package / "models")
        patch.setattr(plan_fingerprints, "_STAGES", package / "stages")
        patch.chdir(root)
        _forget()
        yield changed
    _forget()


def _forget() -> None:
    for function in (config_source_code._imports, config_source_code.imported_modules, config_source_code._file_once):
        function.cache_clear()


EDITS: list[tuple[str, str, str, set[str]]] = [
    ("own/model.py", "  # a comment", "", set()),
    ("own/model.py", "class Own(Model):\n", 'class Own(Model):\n    """A docstring."""\n', set()),
    ("own/model.py", 'rows["x"]', '(\n            rows["x"]\n        )', set()),
    ("own/model.py", "return scale()", "return 2 * scale()", MODEL),
    ("own/model.py", '{"a": latents', '{"b": latents', LATER),
    ("own/model.py", 'return inputs["x"]', 'return inputs["y"]', LATER),
    ("own/model.py", '"Own"', '"Other"', LATER),
    ("own/model.py", "    def outcome", '    def shown(self):\n        return [("a", "A")]\n\n    def outcome', LATER),
    ("own/parts.py", "return 2", "return 3", MODEL),
    ("own/parts.py", "return 2", "return 2  # two", set()),
    ("own/unused.py", "X = 1", "X = 2", set()),
    ("errors.py", "from __future__", "# A comment.\nfrom __future__", set()),
    ("errors.py", "from __future__ import annotations\n", "from __future__ import annotations\n\nX = 1\n", set(RUN)),
    ("kernels/hmc.py", "from __future__ import annotations\n", "from __future__ import annotations\n\nX = 1\n", {"compile", "sample"}),
    ("kernels/nuts.py", "from __future__ import annotations\n", "from __future__ import annotations\n\nX = 1\n", set()),
    # The page computes the errors of intervals.
    ("diagnostics/ranks.py", "from __future__ import annotations\n", "from __future__ import annotations\n\nX = 1\n", {"diagnose", "report"}),
    ("report/templates/page.html", "<", "<!-- text --><", {"report"}),
    ("report/templates/style.css", "{", "{ /* text */", {"report"}),
    ("report/templates/page.js", "make(", "make (", {"report"}),
    ("diagnostics/wordings.yaml", "chains disagree", "the chains disagree", {"diagnose", "report"}),
    ("figures/templates/panel.mplstyle", "font.size: 10", "font.size: 11", {"report"}),
    ("figures/templates/macros.html", "{", " {", {"report"}),
    ("analyses/averaging/section.html", "<", "<!-- text --><", {"report"}),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "stages"), EDITS, ids=[f"{e[0]}: {e[2]!r}" for e in EDITS])
def test_an_edit_changes_the_stages_that_run_it(
    changed: Callable[..., set[str]], file: str, old: str, new: str, stages: set[str]
) -> None:
    assert changed(file, old, new) == stages


def test_a_stopping_rule_monitors_summaries_and_nothing_else(changed: Callable[..., set[str]]) -> None:
    assert changed("own/model.py", '{"a": latents', '{"b": latents', stop=True) == MONITORED
    assert changed("own/model.py", 'return inputs["x"]', 'return inputs["y"]', stop=True) == LATER


def test_the_stopping_rule_counts_where_it_is_used(changed: Callable[..., set[str]]) -> None:
    edit = (
        "stages/stage_stop_rule.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\nX = 1\n",
    )
    assert changed(*edit, stop=True) == {"sample"}
    assert changed(*edit) == set()
