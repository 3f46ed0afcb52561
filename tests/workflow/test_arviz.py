"""ArviZ alone opens posteriors of six kinds: attributes, NetCDF, and every plot and statistic that suits the groups."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from workspace import Workspace

CALLS = """
import sys
import numpy as np, pandas as pd
import bayesmesh as bm

rng = np.random.default_rng(0)
site, x = rng.integers(0, 4, 40), rng.normal(size=40)
y = 1 + 2 * x + rng.normal(size=4)[site] + rng.normal(size=40)
frame = pd.DataFrame({"yield": y, "x": x, "site": np.array(list("abcd"))[site]})
settings = {"draws": 100, "warmup": 100, "chains": 4, "seed": 1, "kernel": {"name": "nuts", "max_tree_depth": 5}}

def curve(latents, data):
    return -0.5 * ((data["yield"] - latents["line"][0] - latents["line"][1] * data["x"]) ** 2).sum()

def of_pymc(rows):
    import pymc
    with pymc.Model(coords={"kind": ["a", "b"]}) as model:
        mean = pymc.Normal("mean", 0, 2, dims="kind")
        pymc.Deterministic("twice", 2 * mean, dims="kind")
        pymc.Normal("seen", mean[0] + mean[1] * rows["x"], 1, observed=rows["yield"])
    return model

def of_numpyro(rows):
    import numpyro
    from numpyro import distributions as dist
    mean = numpyro.sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
    numpyro.deterministic("twice", 2 * mean)
    with numpyro.plate("rows", len(rows["x"])):
        numpyro.sample("seen", dist.Normal(mean[0] + mean[1] * rows["x"], 1), obs=rows["yield"])

MODELS = {
    "groups": {"name": "glm", "formula": "yield ~ x + (1 | site)"},
    "some_rows": {"name": "glm", "formula": "yield ~ x"},
    "density": {"name": "log_density", "function": curve, "prior": {"line": "normal(0, 3)[2]", "scale": "half_normal(1)"}},
    "pymc": {"name": "pymc", "function": of_pymc},
    "numpyro": {"name": "numpyro", "function": of_numpyro},
}
KIND = sys.argv[1]
checked = {"loo": {}, "predictive_checks": {"prior": True}}
more = {"density": {}, "groups": checked, "some_rows": {"posterior": {"pointwise_mebibytes": 0.01}}}.get(KIND, {"loo": {}})
frame[["x", "site"]].assign(site="e").to_csv("new.csv", index=False)
bm.sample(MODELS[KIND], frame[["yield", "x", "site"] if KIND in ("groups", "some_rows") else ["yield", "x"]], name=KIND, **settings, **more)
"""

# The current folder is not on the path of -P, and the package is made unimportable.
READER = """
import inspect, json, sys, warnings
sys.modules["bayesmesh"] = None
import arviz_plots, arviz_stats
import matplotlib
import numpy as np
import xarray as xr
matplotlib.use("agg")
from matplotlib import pyplot

warnings.simplefilter("ignore")  # of few draws, and of the same draws compared with themselves
copy, *paths = sys.argv[1:]
tree = xr.DataTree()
for path in paths:
    tree.update(xr.open_datatree(path, engine="zarr").load().children)
tree.to_netcdf(copy)
back = xr.open_datatree(copy).load()
assert set(back.children) == set(tree.children)
for name, group in tree.children.items():
    xr.testing.assert_equal(group.to_dataset(), back[name].to_dataset())
for group in (tree, *tree.children.values()):
    assert all(isinstance(value, (str, int, float, list)) for value in group.attrs.values()), group.attrs

children = {name: group.to_dataset() for name, group in tree.children.items()}
posterior = children["posterior"]
# A few entries are enough for plots with a panel for each.
few = {name: slice(0, 2) for name in posterior.dims if name not in ("chain", "draw")}
drawn = {name: children[name].isel(few) for name in ("posterior", "prior") if name in children}
small = xr.DataTree.from_dict({**children, **drawn})
first, second = (values.isel(entry=0, drop=True) for values in (
    posterior.isel(few).to_stacked_array("entry", ["chain", "draw"]).isel(entry=slice(i, i + 1)) for i in (0, 1)))
focus = next(iter(posterior))
at = {"coords": {name: posterior[name].values[0] for name in posterior[focus].dims[2:]}}

# They need refits, a second model, times to events, or something other than a posterior.
UNSUITABLE = {
    "bayesian_r2", "generate_survival_curves", "get_function", "kaplan_meier", "lfo_cv", "loo_approximate_posterior", "loo_kfold",
    "loo_moment_match", "loo_subsample", "psense", "psense_summary", "reloo", "residual_r2", "update_subsample", "weight_predictions",
    "plot_ecdf_pit", "plot_ppc_censored", "plot_psense_dist", "plot_psense_quantities",
}
calls = dict.fromkeys((
    "bfmi", "diagnose", "ess", "eti", "hdi", "histogram", "iqr", "kde", "mad", "mcse", "mean", "median", "mode", "qds", "rhat", "std", "summary",
    "thin", "var",
), lambda f: f(tree))
calls |= dict.fromkeys((
    "plot_autocorr", "plot_convergence_dist", "plot_dist", "plot_energy", "plot_ess", "plot_ess_evolution", "plot_forest", "plot_mcse",
    "plot_parallel", "plot_rank", "plot_rank_dist", "plot_ridge", "plot_trace", "plot_trace_dist", "plot_dgof", "plot_dgof_dist",
), lambda f: f(small))
calls |= {
    "ci_in_rope": lambda f: f(tree, rope=(-1, 1)),
    "ecdf": lambda f: f(first, dim=["chain", "draw"]),
    "hexbin": lambda f: f(first.values.ravel(), second.values.ravel()),
    "histogram2d": lambda f: f(first.values.ravel(), second.values.ravel()),
    "kde2d": lambda f: f(first, second, dim=["chain", "draw"]),
    "kl_divergence": lambda f: f(small, small, num_samples=20),
    "plot_pair": lambda f: f(small, var_names=[focus]),
    "plot_pair_focus": lambda f: f(small, focus_var=focus, focus_var_coords=at["coords"]),
    "rhat_nested": lambda f: f(tree, superchain_ids=[0, 0, 1, 1]),
    "wasserstein": lambda f: f(small, small, num_samples=20),
}
of_rows = {
    "compare", "get_log_likelihood", "loo", "loo_expectations", "loo_i", "loo_influence", "loo_metrics", "loo_pit", "loo_r2", "loo_score",
    "metrics", "plot_compare", "plot_khat", "plot_lm", "plot_loo_interval", "plot_loo_pava", "plot_loo_pit", "plot_ppc_dist", "plot_ppc_dist_pit",
    "plot_ppc_interval", "plot_ppc_pava", "plot_ppc_pava_residuals", "plot_ppc_pit", "plot_ppc_rootogram", "plot_ppc_tstat",
}
elpd = None
if "log_likelihood" in children:
    (outcome, observed), = children["observed_data"].items()
    is_discrete, is_binary = observed.dtype.kind in "iub", set(np.unique(observed)) <= {0, 1}
    predictor = next((name for name, values in children["constant_data"].items() if values.dims == ("row",) and values.dtype.kind in "fi"), None)
    elpd = arviz_stats.loo(tree, pointwise=True)
    of_one = {"one": tree, "two": tree}
    rows = dict.fromkeys(of_rows, lambda f: f(tree)) | {
        "compare": lambda f: f(of_one),
        "loo_i": lambda f: f(0, tree),
        "loo_r2": lambda f: f(tree, outcome),
        "plot_compare": lambda f: f(arviz_stats.compare(of_one)),
        "plot_khat": lambda f: f(elpd),
        "plot_lm": lambda f: f(tree, x=predictor, y=outcome, y_obs=outcome, plot_dim="row", group="posterior_predictive"),
        "plot_ppc_pava_residuals": lambda f: f(tree, x_var=predictor),
    }
    # Of whole numbers, of two classes, of one predictor, and of rows with one outcome.
    left = set() if is_discrete else {"plot_ppc_rootogram"}
    left |= set() if is_binary else {"plot_ppc_pava", "plot_loo_pava", "plot_ppc_pava_residuals"}
    left |= set() if predictor else {"plot_lm", "plot_ppc_pava_residuals"}
    left |= set() if observed.ndim == 1 else {
        "loo_metrics", "loo_pit", "loo_score", "metrics", "plot_loo_interval", "plot_loo_pava", "plot_loo_pit", "plot_ppc_dist_pit",
        "plot_ppc_interval", "plot_ppc_pava", "plot_ppc_pit", "plot_ppc_rootogram",
    }
    calls |= {name: call for name, call in rows.items() if name not in left}
else:
    try:
        arviz_stats.loo(tree)
        raise AssertionError("loo takes rows from somewhere")
    except TypeError:
        pass

of_prior = {"bayes_factor", "plot_bf", "plot_prior_posterior"}
if "prior" in children:
    assert set(children["prior"]) == set(posterior)
    assert set(children["predictions_constant_data"]) == {"x", "site"}
    assert children["prior_predictive"].sizes["row"] == children["posterior_predictive"].sizes["row"]
    point = float(posterior[focus].mean())
    calls |= {
        "bayes_factor": lambda f: f(tree, focus, point),
        "plot_bf": lambda f: f(small, focus, ref_val=point),
        "plot_dist": lambda f: (f(small), f(small, group="prior")),
        "plot_lm": lambda f: f(tree, x="x", y=outcome, plot_dim="row", group="predictions"),
        "plot_ppc_dist": lambda f: (f(tree), f(tree, group="prior_predictive")),
        "plot_prior_posterior": lambda f: f(small),
        "summary": lambda f: (f(tree), f(tree, group="prior")),
    }

functions = {name: getattr(package, name) for package in (arviz_stats, arviz_plots) for name in dir(package)}
functions = {name: f for name, f in functions.items() if inspect.isfunction(f) and not (f.__module__.startswith("arviz_plots") and not name.startswith("plot_"))}
expected = UNSUITABLE | of_rows | of_prior | set(calls)
assert set(functions) == expected, set(functions) ^ expected
failed = {}
for name, call in calls.items():
    try:
        call(functions[name])
    except Exception as error:
        failed[name] = repr(error)[:300]
    pyplot.close("all")
print(json.dumps({"groups": [*children], "elpd": elpd and float(elpd.elpd), "failed": failed, "deterministics": {
    name: list(values.dims) for name, values in children.get("deterministics", {}).items()}}))
"""


DIMS = {"pymc": {"twice": ["chain", "draw", "kind"]}, "numpyro": {"twice": ["chain", "draw", "twice_dim_0"]}}
"""Kind -> deterministic -> its dimensions."""


def _open_with_arviz(workspace: Workspace, name: str, folder: Path, *more: Path) -> None:
    """Call the functions of ArviZ on a posterior and more stores, and compare its score of left-out rows with that of the page."""
    stores = workspace.results / name / "posterior.zarr", *more
    environment = {k: v for k, v in workspace.environment.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", READER, str(folder / "copy.nc"), *map(str, stores)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == {}
    assert found["deterministics"] == DIMS.get(name, {})
    assert ("prior" in found["groups"]) == ("prior_predictive" in found["groups"]) == (name == "groups")
    assert (found["elpd"] is None) == (name in ("density", "some_rows"))
    scores = workspace.results / name / "loo" / "loo.csv"
    if scores.exists():
        (row,) = csv.DictReader(scores.read_text().splitlines())
        # ArviZ uses one relative efficiency of the draws for all rows.
        assert found["elpd"] == pytest.approx(float(row["elpd"]), abs=float(row["elpd_mcse"]))


@pytest.mark.parametrize("name", ["digits", "films"])
def test_arviz_opens_a_classification_and_a_factorisation(completed: Workspace, tmp_path: Path, name: str) -> None:
    _open_with_arviz(completed, name, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["groups", "some_rows", "density", "pymc", "numpyro"])
def test_arviz_opens_posteriors_of_every_bridge(workspace: Workspace, tmp_path: Path, kind: str) -> None:
    (workspace.root / "calls.py").write_text(CALLS)
    done = workspace.run("calls", kind)
    assert done.returncode == 0, done.stderr
    more = []
    if kind == "groups":
        more = [workspace.root / "new.zarr"]
        told = ("--table", "new.csv", "--new-levels", "--draws", "new.zarr")
        assert workspace.run("bayesmesh.cli", "predict", kind, *told).returncode == 0
    _open_with_arviz(workspace, kind, tmp_path, *more)
