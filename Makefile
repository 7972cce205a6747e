.DEFAULT_GOAL := help
.PHONY: help setup system test test-rest test-full test-fast chaos soak stream-soak lint demo bench screenshots matrix clean

BIN := .venv/bin
READY := .venv/.ready
# What is typed; directories that do not exist are left out.
TYPED := $(wildcard redis_acker spark_integration tests benchmarks tools/*.py)
# Tests wait for servers and Spark as much as they compute, so three processes are worth it on two cores.
PYTEST := $(BIN)/python -m pytest -q -n 3 --dist loadgroup
# A redis-server that the set-up has put into the virtual environment is found as if it were installed.
export PATH := $(CURDIR)/$(BIN):$(PATH)

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
		printf '%-10s %s\n' "$$name" "$$text"; done

$(READY): pyproject.toml tools/setup.sh
	@sh tools/setup.sh python

system: $(READY)
	@sh tools/setup.sh system

setup: system ## make .venv, and install Java and the Redis servers that the tests need

test: lint ## lint and the tests, except those that take minutes
	$(PYTEST) -m 'not full'

# Clusters and browsers, whose processes need the two cores for themselves.
test-rest: setup ## the tests that `make test` leaves out
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m full

test-full: test test-rest ## lint and every test

test-fast: lint ## lint and the tests that take no more than a few seconds
	$(PYTEST) -m 'not slow and not full'

chaos: setup ## loads under random faults, reconciled with a log of their own; SEED=n repeats one
	$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED))

soak: setup ## half of what the machine can carry for MINUTES=20, with a fault now and then: memory must not grow
	$(BIN)/python -m tests.chaos.soak --minutes $(or $(MINUTES),20)

stream-soak: setup ## a streaming query at half of its rate for MINUTES=10, with a fault every few seconds
	$(BIN)/python -m tests.chaos.stream_soak --minutes $(or $(MINUTES),10)

lint: setup ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(TYPED)

demo: setup ## run redis-acker demo, on a server of its own
	$(BIN)/redis-acker demo

bench: setup ## what the store and a topology do per second, and what tracking costs a Spark job
	$(BIN)/python -m benchmarks store
	$(BIN)/python -m benchmarks spark
	$(BIN)/python -m benchmarks stream
	$(BIN)/python -m benchmarks topology

screenshots: setup ## the pictures of the README
	$(BIN)/python tools/screenshots.py docs/images

# MATRIX="4.0@3.11 4.3@3.13" chooses combinations of PySpark and Python.
matrix: system ## the Spark tests on other versions of PySpark and Python
	@sh tools/matrix.sh $(MATRIX)

clean: ## remove .venv and everything that was built
	rm -rf .venv .matrix build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
