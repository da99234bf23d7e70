PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check lint build stubs pictures lessons wheels bench clean

# Train micrograd's moons demo and show the result.
demo: $(VENV)/installed
	$(BIN)/python examples/moons.py

# The whole test suite, on the native engine and again on the Python one.
test: $(VENV)/tests-installed lint lessons
	CHAINRULE_ENGINE=native $(BIN)/python -m pytest -n 2 --doctest-modules src tests
	CHAINRULE_ENGINE=python $(BIN)/python -m pytest -n 2 -m "not slow" -q tests

# What to run before every commit: lint, types, core tests. Under two minutes.
check: $(VENV)/tests-installed lint lessons
	CHAINRULE_ENGINE=native $(BIN)/python -m pytest -n 2 -q -m "not slow" --doctest-modules src tests

lint: $(VENV)/tests-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Rebuild the native engine after a change to ops.py or _native.c.
build: $(VENV)/installed
	$(BIN)/python setup.py -q build_ext --inplace --force

# Rewrite the type signatures after a change to the op table.
stubs: $(VENV)/installed
	$(BIN)/python tools/write_signatures.py

# Draw the pictures of the README again.
pictures: $(VENV)/installed
	$(BIN)/python tools/make_pictures.py

# Build the course's site; `chainrule learn` serves it. Needs Node.js.
lessons: $(VENV)/installed lessons/node_modules/installed
	cd lessons && node_modules/.bin/tsc
	cd lessons && PYTHON=../$(BIN)/python node build.mjs

lessons/node_modules/installed: lessons/package.json lessons/package-lock.json
	cd lessons && npm ci --no-audit --no-fund
	touch $@

# A wheel with the native engine for this platform, and a pure one for all others.
wheels: $(VENV)/installed lessons
	rm -rf build dist
	$(BIN)/pip wheel -q --no-deps -w dist .
	rm -rf build
	CHAINRULE_PURE=1 $(BIN)/pip wheel -q --no-deps -w dist .

bench: $(VENV)/bench-installed
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/compiler.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/chainrule/*.so src/chainrule/_native_ops.h src/chainrule/learn/site lessons/node_modules

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml setup.py src/chainrule/ops.py src/chainrule/c_text.py src/chainrule/_native.c
	$(BIN)/pip install -q -e .
	touch $@

$(VENV)/tests-installed: $(VENV)/installed
	$(BIN)/pip install -q -e .[test,lint]
	tools/install_chromium.sh
	touch $@

$(VENV)/bench-installed: $(VENV)/installed
	$(BIN)/pip install -q -e .[bench]
	touch $@
