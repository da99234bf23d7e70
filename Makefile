PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test on-the-native-engine on-the-python-engine check torture mutants fuzz kills races sanitize lint build stubs commands pictures notebooks docs lessons wheels bench clean

# Train micrograd's moons demo and show the result.
demo: $(VENV)/installed
	$(BIN)/python examples/moons.py

# The whole test suite, on the native engine, and what depends on the engine again on the Python one. A module's tests stay
# in one process, so that what they share (a browser page, the built site) is made once; modules are taken in the order of
# tests/conftest.py, the longest first. There is one process more than a small machine has cores, for tests that wait.
# Python keeps what it has compiled: hundreds of processes import the library anew.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
test: $(VENV)/tests-installed
	$(MAKE) lessons
	$(MAKE) -j 2 lint on-the-native-engine
	$(MAKE) -j 3 on-the-python-engine half-a-minute-of-hours half-a-minute-of-days

on-the-native-engine: $(VENV)/tests-installed
	CHAINRULE_ENGINE=native $(PYTEST) --doctest-modules src tests

on-the-python-engine: $(VENV)/tests-installed
	CHAINRULE_ENGINE=python $(PYTEST) -q -m "not slow and not once" tests

# What to run before every commit, in about a minute: lint, types, the engines, the public library, the compiler's core.
CHECKED := tests/core tests/users tests/compiler/test_compiler.py tests/repository/test_layers.py
check: $(VENV)/tests-installed lint
	CHAINRULE_ENGINE=native $(PYTEST) -q -m "not slow" $(CHECKED)

lint: $(VENV)/tests-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_complexity.py src
	$(BIN)/mypy

# Random programs on every engine: make torture SECONDS=3600 SEED=1 FAMILIES=coupled,scan
SECONDS ?= 60
torture: $(VENV)/tests-installed
	$(BIN)/python tests/support/torture.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(FAMILIES),--families $(FAMILIES))

half-a-minute-of-%: $(VENV)/tests-installed
	$(BIN)/python tests/support/torture.py --seconds 30 --seed $*

# What learners are told about slips in the solutions of the course, in groups to read: make mutants EXERCISES="add mul"
mutants: $(VENV)/tests-installed
	$(BIN)/python tests/support/mutants.py $(EXERCISES)

# Hostile model files, CSV files and formulas, and a training run that is killed again and again: make fuzz INPUTS=1000
INPUTS ?= 100000
KILLS ?= 200
fuzz: $(VENV)/tests-installed
	$(BIN)/python tools/fuzz.py --inputs $(INPUTS)

kills: $(VENV)/installed
	$(BIN)/python tools/kill_checkpoints.py --kills $(KILLS)

# Every public call of compiled code, from eight threads at once: make races RESULTS=1000
RESULTS ?= 10000
races: $(VENV)/tests-installed
	$(BIN)/python tests/support/racing.py --results $(RESULTS)

# The tests with the native engine built to notice wrong memory accesses and undefined behaviour. Nodes live in Python's own
# allocator, in which the sanitizer sees no end of a block, so it is given up for malloc; a build with a planted use of a
# freed node shows that such a thing is seen.
SANITIZED := build/sanitized
PLANTED := build/planted
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1
SANITIZED_TESTS := tests/core tests/debug $(patsubst %,tests/users/test_%.py,nn optim losses transforms objectives) \
	$(patsubst %,tests/training/test_%.py,training compiled_training checkpoints) \
	$(patsubst %,tests/compiler/test_%.py,compiler symbols recurrence ragged_sums compile_functions hazards captured kernels arguments branches tape)
UNDER_SANITIZER = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	PYTHONMALLOC=malloc CHAINRULE_ENGINE=native
sanitize: $(VENV)/tests-installed
	$(call build_sanitized,$(PLANTED),-DPLANTED_USE_AFTER_FREE)
	! $(UNDER_SANITIZER) PYTHONPATH=$(PLANTED)/src $(BIN)/python -c "from chainrule import Value; Value(1.0) * 2.0" 2> $(PLANTED)/report
	grep -m 1 "heap-use-after-free" $(PLANTED)/report
	$(call build_sanitized,$(SANITIZED),)
	$(UNDER_SANITIZER) PYTHONPATH=$(SANITIZED)/src $(BIN)/python -m pytest -q -p no:cacheprovider -m "not slow" $(SANITIZED_TESTS)

define build_sanitized
	rm -rf $(1) && mkdir -p $(1)
	cp -r src setup.py pyproject.toml README.md LICENSE $(1) && rm -f $(1)/src/chainrule/*.so
	cd $(1) && CFLAGS="$(SANITIZE) $(2)" LDFLAGS="-fsanitize=address,undefined" $(abspath $(BIN))/python setup.py -q build_ext --inplace
endef

# Rebuild the native engine after a change to ops.py or native/engine.c.
build: $(VENV)/installed
	$(BIN)/python setup.py -q build_ext --inplace --force

# Rewrite the type signatures and the page of the ops after a change to the op table.
stubs: $(VENV)/installed
	$(BIN)/python tools/write_signatures.py
	$(BIN)/python tools/write_ops_page.py

# Rewrite the reference of the commands after a change to the command line.
commands: $(VENV)/installed
	$(BIN)/python tools/write_command_line.py

# Draw the pictures of the README and the documentation again.
pictures: $(VENV)/docs-installed
	$(BIN)/python tools/make_pictures.py

# Run the notebooks, and keep what they show in them.
notebooks: $(VENV)/docs-installed
	$(BIN)/python tools/run_notebooks.py

# The documentation, with fresh pictures and notebooks, as a site that opens from site/index.html.
docs: stubs commands pictures notebooks
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Build the course's site; `chainrule learn` serves it. Needs Node.js.
lessons: $(VENV)/installed lessons/node_modules/installed
	cd lessons && node_modules/.bin/tsc
	cd lessons && PYTHON=../$(BIN)/python node build.mjs

lessons/node_modules/installed: lessons/package.json lessons/package-lock.json
	cd lessons && npm ci --no-audit --no-fund
	touch $@

# An sdist with the built course, and of it a wheel with the native engine for this platform, and a pure one for all others.
wheels: $(VENV)/installed lessons
	rm -rf build dist
	$(BIN)/python setup.py -q sdist
	$(BIN)/pip wheel -q --no-deps -w dist dist/*.tar.gz
	CHAINRULE_PURE=1 $(BIN)/pip wheel -q --no-deps -w dist dist/*.tar.gz

# The scoreboard, into benchmarks/results.md, the README and its picture. Some of it: make bench ARGUMENTS="--workloads moons"
bench: $(VENV)/bench-installed
	$(BIN)/python benchmarks/scoreboard.py $(ARGUMENTS)

clean:
	rm -rf $(VENV) build dist site src/*.egg-info src/chainrule/*.so src/chainrule/native/ops.h src/chainrule/learn/site lessons/node_modules

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml setup.py src/chainrule/ops.py $(filter-out %/ops.h,$(wildcard src/chainrule/native/*.[ch] src/chainrule/native/*.py))
	$(BIN)/pip install -q -e .
	touch $@

$(VENV)/tests-installed: $(VENV)/installed
	$(BIN)/pip install -q -e .[test,lint,docs]
	tools/install_chromium.sh
	touch $@

$(VENV)/docs-installed: $(VENV)/installed
	$(BIN)/pip install -q -e .[docs]
	touch $@

$(VENV)/bench-installed: $(VENV)/installed
	$(BIN)/pip install -q -e .[bench]
	touch $@
