PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp-dev
STAMP_LONG := .venv/.stamp-long
STAMP_DOCS := .venv/.stamp-docs

# mypy refuses folders without Python files, so only those that have some are named.
CODE := $(foreach folder,harness methods spaces studies reports tests,\
	$(if $(wildcard $(folder)/*.py $(folder)/*/*.py),$(folder)))

# One thread a process: the suite runs its processes side by side, and results depend on thread counts.
export OMP_NUM_THREADS := 1

.PHONY: setup setup-long demo test test-long campaign perf lint docs clean

setup: $(STAMP)

# The oldest Python that the project supports.
OLDEST := $(shell sed -n 's/^requires-python = ">=\([0-9.]*\)"/\1/p' pyproject.toml)
# The version of an interpreter, such as 3.11; nothing if it does not run.
version = $(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
# A version that is supported; nothing for another one.
supported = $(shell printf '%s\n' $(OLDEST) $(1) | sort -VC && echo $(1))
# .venv stays if its Python runs and is supported, and if PYTHON, where one is named, is of the same version.
MADE_BY := $(call version,$(BIN)/python)
NAMED := $(if $(filter-out file,$(origin PYTHON)),$(call version,$(PYTHON)),$(MADE_BY))
KEPT := $(filter $(NAMED),$(call supported,$(MADE_BY)))

.PHONY: environment
environment:
	@test -n "$(call supported,$(call version,$(PYTHON)))" || { \
		echo "error: $(PYTHON) is Python $(or $(call version,$(PYTHON)),that does not run);" \
			"$(OLDEST) or newer is needed: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python$(OLDEST)" >&2; exit 1; }
	@test ! -e .venv || echo ".venv is rebuilt: its Python is $(or $(MADE_BY),broken), the new one" \
		"is $(call version,$(PYTHON))"
	$(PYTHON) -m venv --clear .venv

$(STAMP): pyproject.toml $(if $(KEPT),,environment)
	$(BIN)/python -m pip install -e '.[dev]'
	touch $@

# What only the longer targets need.
setup-long: $(STAMP_LONG)

$(STAMP_LONG): $(STAMP)
	$(BIN)/python -m pip install -e '.[dev,long]'
	touch $@

demo: setup
	$(BIN)/python -m harness run studies/ablation_calr_ms.py --preset demo
	$(BIN)/python -m harness report ablation_calr_ms --preset demo --references

# As many processes as there are cores, at most four: each has a database server of its own.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n : 4)))
test: setup lint
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# One after the other: they load the machine themselves. A part: make test-long LONG=tests/long/test_soak.py
# The last -m wins over the one in pyproject.toml.
LONG ?= tests
test-long: setup-long
	$(BIN)/python -m pytest -m long -s $(LONG)

# Attacks on stored runs, one table. A part: make campaign PART='kills documents'; the same again: SEED=1
PART ?=
SEED ?= 1
campaign: setup-long
	$(BIN)/python -m tests.long.campaign $(PART) --seed $(SEED)

# Ratios against plain code, and how costs grow: a table and a plot in perf/. A part: make perf PERF='--only step data'
PERF ?=
perf: setup-long
	$(BIN)/python -m tests.perf $(PERF)

lint: setup
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)

# The site, in build/site: every page of docs/, the help of every command, the Python API.
docs: $(STAMP_DOCS)
	$(BIN)/python -m sphinx -q -W --keep-going docs build/site

$(STAMP_DOCS): $(STAMP)
	$(BIN)/python -m pip install -e '.[docs]'
	touch $@

# The versions that this environment has, which the suite was run with; no address.
constraints.txt: $(STAMP_LONG)
	$(BIN)/python -m pip freeze --exclude-editable | grep == > $@

clean:
	rm -rf build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
