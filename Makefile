# `make help` lists the targets from the comments behind them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup build demo test ready lint fmt stubs bench bench-quick clean

PYTHON_TOOLS := .venv/bin/python -m
CHECKS := .venv/bin/python tools/checks.py
RACE := .venv/bin/python -m benches.race
# napi always names the target, so maturin does too: both then share what they build.
# maturin installs into the environment that is active.
export VIRTUAL_ENV := $(CURDIR)/.venv

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## install what is missing: redis-server, the Python tools into .venv, the Node tools into node_modules
	@tools/setup.sh

build: setup ## build the Python package into .venv and the Node addon
	@echo "build: Python package (maturin)"
	@$(PYTHON_TOOLS) maturin develop --release --locked --target "$$(rustc -vV | sed -n 's/host: //p')"
	@echo "build: Node addon (napi)"
	@npm run --silent build

demo: build ## show the watchdog at work from Python and Node on one lock, in under a minute
	@.venv/bin/python -u examples/demo/demo.py

test: build ## run the Rust, Python and Node tests against a Redis of their own
	@$(CHECKS) test

ready: build ## all that CI runs: lint, types, stubs, wasm, tests
	@$(CHECKS) ready

lint: build ## the checks of `make ready` without the tests
	@$(CHECKS) lint

fmt: setup ## format Rust and Python
	@cargo fmt --all
	@$(PYTHON_TOOLS) ruff format .
	@$(PYTHON_TOOLS) ruff check --fix --quiet .

stubs: build ## write the Python stubs and the TypeScript declarations from the doc comments in Rust
	@PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/python bindings-python/stubs.py

bench: build ## race the built packages against their peers (half an hour; the machine should be quiet)
	@cargo bench --locked -p bandog-core
	@taskset -c 0 cargo bench --locked -p bandog --bench pair
	@$(RACE) run --json build/race.json

bench-quick: build ## one short round of the race, on one core, for a first impression
	@$(RACE) run --quick

clean: ## remove what was built, and the installed tools
	@cargo clean --quiet
	@rm -rf .venv node_modules build bindings-node/*.node bindings-python/python/bandog/*.so
