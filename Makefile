# Each target creates .venv from the locks in envs/ if needed (tools/bootstrap.sh).
.DEFAULT_GOAL := help
SHELL := /bin/sh

ACCELERATOR ?= cpu
# Target machine of a bundle: any Linux with glibc 2.28 (RHEL 8) or newer.
PYTHON ?= 3.12
PLATFORM ?= manylinux_2_28_$(shell uname -m)
# Two, because a worker that compiles JAX programs needs a core and about 2 GB.
PYTEST_WORKERS ?= 2
PYTEST_ARGS ?=
SNAKEMAKE_ARGS ?=

# Rules and tests call bayesmesh and snakemake by name.
in_venv := PATH="$$(pwd)/.venv/bin:$$PATH"

# What says whether draws are right; the first folder holds the table that is printed at the end.
samplers := tests/samplers tests/exact/test_invariance.py tests/exact/test_joint.py tests/exact/test_posterior.py tests/exact/test_units.py \
    tests/contract/test_kernels.py tests/contract/test_metrics.py tests/unit/kernels tests/unit/diagnostics/gates/test_evaluation.py \
    $(addprefix tests/unit/sampling/, density/test_constrained.py density/test_log_density.py density/test_units.py program/test_chain_group.py program/test_initial.py)

.PHONY: help run gpu-check chaos defects mutants verify-samplers reproduce bench test suite slurm-test bundle release-check bundle-test check check-style check-imports check-types check-workflow check-schema nightly schema new-model site gallery lock clean-env env peers-env dev-env

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

run: env ## quickstart on built-in data, a few minutes, no network (ACCELERATOR=cuda|tpu)
	@$(in_venv) .venv/bin/bayesmesh run quickstart $(SNAKEMAKE_ARGS)
	@$(in_venv) .venv/bin/bayesmesh status

reproduce: env peers-env ## published experiments and benchmarks on real data, and their claims: two hours (needs network or BAYESMESH_MIRROR=DIR)
	@$(in_venv) .venv/bin/snakemake reproduce $(SNAKEMAKE_ARGS)

bench: env peers-env ## all benchmarks on this machine, and their page: hours (key benchmarks of config/reproduction.yaml)
	@$(in_venv) .venv/bin/snakemake benchmarks $(SNAKEMAKE_ARGS)

gpu-check: env ## what needs an accelerator, in pieces under ten minutes (ACCELERATOR=cuda; PIECES="--only mnist")
	@$(in_venv) .venv/bin/python tools/gpu_check.py $(PIECES)

test: check suite ## make check, then all tests (PYTEST_ARGS="-k name", PYTEST_WORKERS=4); -j2 runs them side by side

# Tests that run make are not to ask this one for jobs. A worker that dies ends the run: with loadscope, xdist 3.8 waits
# forever for the one that takes its place.
suite: dev-env
	@$(in_venv) MAKEFLAGS= .venv/bin/python -m pytest -n $(PYTEST_WORKERS) --dist loadscope --no-loadscope-reorder --max-worker-restart 0 $(PYTEST_ARGS)

slurm-test: dev-env ## tests on a Slurm cluster that they start on this machine (root on Debian; PYTEST_ARGS)
	@tools/slurm-test.sh $(PYTEST_ARGS)

bundle: ## build a directory that installs without network (ACCELERATOR=cuda PYTHON=3.12 PLATFORM=manylinux_2_28_x86_64)
	@tools/bootstrap.sh cpu
	@.venv/bin/python tools/bundle.py --accelerator $(ACCELERATOR) --python $(PYTHON) --platform $(PLATFORM)

# is this checkout a release? versions, changelog, wheel, locks, links
release-check: dev-env
	@$(in_venv) .venv/bin/python tools/release_check.py

# build a bundle, install it and run it without network (root on Linux; 300 MB)
bundle-test: dev-env
	@PYTEST_DEBUG_TEMPROOT=$${TMPDIR:-/tmp} .venv/bin/python -m pytest -q tests/bundle $(PYTEST_ARGS)

check: check-style check-imports check-types check-workflow check-schema ## style, layers, types, workflow lint, drift of generated files

check-style: dev-env
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check

check-imports: dev-env
	@.venv/bin/lint-imports --no-cache --no-logo

check-types: dev-env
	@.venv/bin/python tools/guide_examples.py .venv/examples
	@.venv/bin/mypy src .venv/examples

check-workflow: dev-env
	@.venv/bin/snakefmt --check Snakefile workflow src/bayesmesh_reproduction/rules.smk
	@$(in_venv) .venv/bin/snakemake --lint

check-schema: dev-env
	@.venv/bin/bayesmesh schema --check
	@.venv/bin/python tools/api_page.py --check
	@.venv/bin/python tools/flow_picture.py --check

schema: env ## regenerate config/schema.json, config/README.md, docs/api.md and docs/images/flow.svg
	@.venv/bin/bayesmesh schema
	@.venv/bin/python tools/api_page.py
	@.venv/bin/python tools/flow_picture.py

new-model: env ## write a model and its test, ready to run (NAME=my_model)
	@.venv/bin/bayesmesh new model "$${NAME:?set NAME, for example: make new-model NAME=my_model}"

verify-samplers: dev-env ## are the draws right? densities, integrator, invariance, calibration, known posteriors, and a table (10 minutes on two cores)
	@$(in_venv) BAYESMESH_VERIFY=1 .venv/bin/python -m pytest -q -n $(PYTEST_WORKERS) $(samplers) $(PYTEST_ARGS)

# seed eight defects of samplers, one at a time, and show that verify-samplers sees each
defects: dev-env
	@$(in_venv) nice .venv/bin/python tests/mutants/run.py --table samplers --out $${TMPDIR:-/tmp}/defects.csv

# kill commits, stages and whole sessions KILLS times (300), and compare values with an undisturbed run
chaos: dev-env
	@$(in_venv) .venv/bin/python tests/chaos/kill.py --kills $(or $(KILLS),300)

nightly: dev-env peers-env ## the large checks, hours: 600 damages, deleted folders, jobs in pairs, hostile models, 20 posteriors, 46 tables, 300 kills, samplers, mutants
	@$(in_venv) BAYESMESH_NIGHTLY=1 .venv/bin/python -m pytest -n $(PYTEST_WORKERS) tests/browser/test_site.py tests/workflow/test_arviz.py tests/workflow/test_promises.py tests/workflow/test_cluster_generic.py tests/exact/test_devices.py tests/exact/test_posteriors.py tests/exact/test_tables.py tests/unit/analyses tests/unit/sampling/checks/test_maps.py tests/unit/store/test_crashes.py tests/workflow/test_crossed_groups.py tests/workflow/test_folds.py tests/workflow/test_kills.py tests/workflow/test_million_rows.py tests/workflow/test_processes.py tests/workflow/test_real_data.py tests/workflow/test_relatives.py tests/workflow/test_sweeps.py tests/workflow/test_tutorials.py tests/workflow/test_upkeep.py tests/neighbours/test_formulas.py tests/neighbours/test_models.py tests/chaos
	@$(in_venv) .venv/bin/python tests/chaos/kill.py --kills 300
	@$(in_venv) BAYESMESH_NIGHTLY=1 .venv/bin/python -m pytest -n $(PYTEST_WORKERS) $(samplers)
	@$(in_venv) .venv/bin/python tests/mutants/run.py
	@$(in_venv) PYTHONPATH=src:tests:tests/support .venv/bin/python -m tabular.peers

mutants: dev-env ## seed defects into a copy of the source and list which of them the tests see (MUTANTS="--jobs 8 --only ID")
	@$(in_venv) nice .venv/bin/python tests/mutants/run.py $(MUTANTS)

site: ## build the site of the documentation in build/site
	@tools/bootstrap.sh site
	@tools/site.sh

# run the experiments of the gallery: pages in build/gallery, pictures in docs/images (needs Chromium)
gallery: env
	@$(in_venv) .venv/bin/python tools/gallery.py

lock: ## regenerate the locks in envs/ (UPGRADE=1 for newer versions)
	@tools/lock.sh

# the next target creates them again
clean-env:
	@rm -rf .venv .venv-peers .venv-site

env: ## create or update .venv (ACCELERATOR=cuda|tpu)
	@tools/bootstrap.sh $(ACCELERATOR)

peers-env:
	@tools/bootstrap.sh peers

dev-env:
	@tools/bootstrap.sh dev
