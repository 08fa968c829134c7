PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp-dev
STAMP_LONG := .venv/.stamp-long

# mypy refuses folders without Python files, so only those that have some are named.
CODE := $(foreach folder,harness methods spaces studies reports tests,\
	$(if $(wildcard $(folder)/*.py $(folder)/*/*.py),$(folder)))

# One thread a process: the suite runs its processes side by side, and results depend on thread counts.
export OMP_NUM_THREADS := 1

.PHONY: setup setup-long demo test test-long campaign perf lint clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
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

clean:
	rm -rf build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
