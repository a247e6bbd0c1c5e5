# All that is needed on a Debian machine: git, make and python3-venv. `make PYTHON=python3.12 test` chooses another Python.
BIN = .venv/bin
# Three for two cores: tests wait as much as they work.
PARALLEL = -n 3 --dist loadscope --no-loadscope-reorder
# Tests start hundreds of processes: where bytecode is not kept, each of them compiles the package anew.
export PYTHONDONTWRITEBYTECODE =
.DEFAULT_GOAL = help
.PHONY: help demo test soak chaos kill fleet lint bench diagram clean package environment

help:  ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: package  ## run real jobs on real files; ARGS="PATH --once" goes to `jobevents demo`
	@$(BIN)/jobevents demo $(ARGS)

test: lint  ## everything: lint, types, imports, all tests, and a part of them on other Pythons
	@.ci/scratch .ci/others $(PARALLEL) $(ARGS)
	JOBEVENTS_SOAK_S=30 .ci/scratch $(BIN)/python -m pytest $(PARALLEL) $(ARGS)

soak: environment  ## ten minutes of four workers that are killed all the time
	JOBEVENTS_SOAK_S=600 $(BIN)/python -m pytest -s tests/test_soak.py $(ARGS)

kill: environment  ## 20,000 runs on each database by eight processes that are killed one after another
	JOBEVENTS_KILL_RUNS=20000 $(BIN)/python -m pytest -s tests/test_killed_runners.py $(ARGS)

chaos: environment  ## 20,000 simulated worlds of the cloud protocol, of which make test lives through 500
	JOBEVENTS_CHAOS_SEEDS=20000 $(BIN)/python -m pytest -n 2 tests/test_simulation.py $(ARGS)

fleet: environment  ## 3,000 jobs in a bucket, and in files: workers and a projector killed, Pub/Sub gone for 20 s
	JOBEVENTS_FLEET_JOBS=3000 JOBEVENTS_FLEET_OUTAGE_S=20 JOBEVENTS_GCS_FILES=1 $(BIN)/python -m pytest -s tests/test_fleet.py $(ARGS)

lint: environment  ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: environment  ## what things cost, in minutes; ARGS="append-one --scale full --json FILE" and more: ARGS=--help
	@$(BIN)/python -m benchmarks $(ARGS)

diagram: environment  ## write the picture of the transitions into CONTRIBUTING.md again
	@$(BIN)/python -m tests.diagram

clean:  ## remove environments and caches
	rm -rf .venv .venv-3.* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

package:
	@.ci/venv .venv

environment:
	@.ci/venv .venv all,test
