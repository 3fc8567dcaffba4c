# Two commands do everything: `make run` and `make test`. They install what they need into .venv.

# What .venv is made with, once; to run on another: make clean && make test PYTHON=python3.13
PYTHON ?= python3
DATA ?= data
PORT ?= 8787
UV := .venv/bin/uv

.PHONY: run setup test soak check format golden lock bench bench-check clean

run: .venv/runtime
	@.venv/bin/muniment demo --data-dir $(DATA) --port $(PORT) $(if $(CHAINS),--chains $(CHAINS))

setup: .venv/dev

.venv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "Python 3.11, 3.12 or 3.13 is needed; say which with: make PYTHON=python3.12 …"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "This Python has no venv. On Debian or Ubuntu: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check uv

.venv/runtime: .venv/bin/uv requirements.lock pyproject.toml
	$(UV) pip install --quiet --python .venv/bin/python --require-hashes -r requirements.lock
	$(UV) pip install --quiet --python .venv/bin/python --no-deps -e .
	@touch $@

.venv/dev: .venv/runtime requirements-dev.lock
	$(UV) pip install --quiet --python .venv/bin/python --require-hashes -r requirements-dev.lock
	@touch $@

test: .venv/dev
	@.venv/bin/python tests/node/install.py
	.venv/bin/pytest -n 2

# A hundred kills of processes and of PostgreSQL under load, on each engine; SOAK_ROUNDS says how many.
soak: .venv/dev
	.venv/bin/pytest -s -p no:xdist tests/soak

check: .venv/dev
	@.venv/bin/ruff check --quiet && .venv/bin/ruff format --check --quiet
	@.venv/bin/basedpyright
	@.venv/bin/lint-imports --no-logo
	@.venv/bin/pytest -q -p no:xdist tests/contract/test_golden.py

format: .venv/dev
	.venv/bin/ruff check --fix --quiet; .venv/bin/ruff format

golden: .venv/dev
	.venv/bin/python tests/contract/golden.py

lock: .venv/bin/uv
	$(UV) pip compile --quiet --universal --generate-hashes --no-header -o requirements.lock pyproject.toml
	$(UV) pip compile --quiet --universal --generate-hashes --no-header -c requirements.lock --group dev \
	  -o requirements-dev.lock pyproject.toml

bench: .venv/dev
	@.venv/bin/python bench/peers/install.py
	.venv/bin/python bench/run.py $(ARGS)

bench-check: .venv/dev
	@.venv/bin/python bench/targets.py

clean:
	rm -rf .venv tests/node/node_modules bench/peers/node_modules .ruff_cache .hypothesis
