# Every target works in a shell that has no virtual environment activated: programs are called by their path.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
export PYTHON
export SPARK_LOCAL_IP := 127.0.0.1
# The programs that tests start would each compile all of Gnomon: 0.4 s of CPU.
unexport PYTHONDONTWRITEBYTECODE

venv := .venv/bin
# Two processes, each with a Spark session of its own; a file's tests stay together, for they share what they make. They
# take the files in the order of tests/seconds.py.
pytest := $(venv)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
# Whatever may start Spark runs with the Java that deploy/setup.sh found fit for it.
with_java := JAVA_HOME="$$(deploy/setup.sh --java-home)"

# The fast tests that start no Spark, store, browser or other process, with a tenth of the random tries.
not_on_connect := --ignore tests/indexer/test_connect.py --ignore tests/indexer/spark --ignore tests/indexer/test_other_python.py
quick := GNOMON_TEST_PROFILE=quick $(pytest) --quiet -m "not (spark or store or browser or process or slow or nightly)"

.PHONY: help system setup demo quick test check coverage nightly bench bench-report docs serve clean

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

system:
	@deploy/setup.sh

.venv/.installed: pyproject.toml gnomon/base/_hashes.pyx gnomon/base/_kernel.pyx gnomon/base/_records.pyx | system
	@deploy/setup.sh --compiler || true
	@echo "Installing Gnomon and what it needs into .venv: some minutes and 1.5 GB the first time."
	@test -x $(venv)/pip || "$(PYTHON)" -m venv .venv
	@$(venv)/python -m pip install --quiet --disable-pip-version-check --editable '.[spark,service,dev]'
	@touch $@

setup: system .venv/.installed ## Check Java and Python, make .venv and install everything into it

demo: setup ## Index a made-up web crawl, fetch, load and dedup it, in .demo
	@$(with_java) $(venv)/gnomon demo

quick: setup ## Run ruff, mypy and the tests that start no other process: before each commit
	@$(venv)/ruff check .
	@$(venv)/ruff format --check .
	@$(venv)/mypy
	@$(quick)

test: setup ## Run all tests, except those that run for minutes
	@$(with_java) $(pytest)

check: setup ## Run what a change must pass: ruff, mypy, all tests (warnings are errors)
	@$(venv)/ruff check .
	@$(venv)/ruff format --check .
	@$(venv)/mypy
	@$(with_java) $(pytest)

coverage: setup ## Show the branches that tests take in the modules of the main promises
	@$(venv)/python -m coverage run -m pytest --numprocesses 0 --quiet \
		-m "not (spark or store or browser or process or slow or nightly)" \
		tests/btree tests/jobs tests/shadow tests/service/indexes
	@$(venv)/python -m coverage report

nightly: setup ## Run the fuzz of the compiled loops under sanitizers, all tests in full, and those that run for minutes
	@deploy/fuzz-kernel.sh 600
	@$(with_java) GNOMON_TEST_PROFILE=full $(pytest)
	@$(with_java) GNOMON_TEST_CONNECT=1 $(venv)/python -m pytest --numprocesses 0 tests/indexer $(not_on_connect)
	@$(with_java) GNOMON_TEST_PROFILE=nightly GNOMON_TEST_BOUNDS=required $(venv)/python -m pytest -m nightly --ignore tests/machines

bench: setup ## Measure fetches beside DuckDB, Polars and Lance
	@$(with_java) $(venv)/python -m bench.fetch

bench-report: setup ## Write docs/benchmarks.md from the recorded results in bench/results
	@$(venv)/python -m bench.report

docs: setup ## Build the site of the documentation into build/site; a warning fails
	@$(venv)/python docs/site/make.py

serve: setup ## Serve the demo's index over HTTP
	@$(venv)/gnomon serve .demo/index

clean: ## Remove the demo, the benches' data, build output and caches; .venv stays
	@rm -rf .demo .bench build dist gnomon/base/_*.c .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@rm -rf spark-warehouse metastore_db derby.log
	@find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
