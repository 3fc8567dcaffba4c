# `make run` and `make test` install what they need into .venv.

# What the environment is made with, once, and where it lies. To run on another Python, give both:
# make test PYTHON=python3.14 VENV=.venv-3.14
PYTHON ?= python3
VENV ?= .venv
DATA ?= data
PORT ?= 8787
UV := $(VENV)/bin/uv
# Debian's Python has no pip to install uv with until python3-venv is there: a uv that is here already does as well.
UV_HERE = $(shell command -v uv || realpath -e .venv/bin/uv 2>/dev/null)

.PHONY: run setup npm test test-long long requests pictures docs unit soak fuzz deploy-test ha-test check types types-of-tests contracts house format golden lock dist sbom bench bench-check clean

run: $(VENV)/runtime
	@$(VENV)/bin/muniment demo --data-dir $(DATA) --port $(PORT) $(if $(CHAINS),--chains $(CHAINS))

setup: $(VENV)/dev

$(VENV)/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 16))' \
	  || { echo "Python 3.11 to 3.15 is needed; say which with: make PYTHON=python3.14 …"; exit 1; }
	@if $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then \
	  $(PYTHON) -m venv $(VENV) && $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv; \
	elif [ -n "$(UV_HERE)" ] && $(PYTHON) -m venv --without-pip $(VENV); then ln -s "$(UV_HERE)" $@; \
	else echo "This Python has no ensurepip. On Debian or Ubuntu: apt install python3-venv; or install uv"; exit 1; fi

# With the extras, because `muniment demo` has a relayer.
$(VENV)/runtime: $(VENV)/bin/uv requirements-extras.lock pyproject.toml
	$(UV) pip install --quiet --python $(VENV)/bin/python --require-hashes -r requirements-extras.lock
	$(UV) pip install --quiet --python $(VENV)/bin/python --no-deps -e .
	@touch $@

# The tools of the tests in tests/deploy. They have an environment of their own, beside that of the service.
TOOLS ?= .venv-deploy

$(TOOLS)/done: $(VENV)/bin/uv requirements-deploy.lock
	@test -e $(TOOLS)/bin/python || $(UV) venv --quiet --python $(VENV)/bin/python $(TOOLS)
	$(UV) pip install --quiet --python $(TOOLS)/bin/python --require-hashes -r requirements-deploy.lock
	@touch $@

# What makes the site of the documentation, in an environment of its own too.
DOCS ?= .venv-docs

$(DOCS)/done: $(VENV)/bin/uv requirements-docs.lock
	@test -e $(DOCS)/bin/python || $(UV) venv --quiet --python $(VENV)/bin/python $(DOCS)
	$(UV) pip install --quiet --python $(DOCS)/bin/python --require-hashes -r requirements-docs.lock
	@touch $@

$(VENV)/dev: $(VENV)/runtime requirements-dev.lock
	$(UV) pip install --quiet --python $(VENV)/bin/python --require-hashes -r requirements-dev.lock
	@touch $@

FOLDERS := $(addprefix tests/,api cli client contract e2e process unit)
# The tests of the files in deploy/ that take seconds; `make deploy-test` has the others.
QUICK := $(addprefix tests/deploy/test_,caddy.py compose.py kustomize.py systemd.py workflows.py)

# Two processes for each core: many tests wait for processes that they have started. Each has its own PostgreSQL.
TEST_WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((2 * (cores < 8 ? cores : 8))))

# To make up a request takes tens of milliseconds, and to collect those for each edge of each parameter a minute of a
# core in every process.
REQUESTS := tests/contract/test_fuzz.py

npm: $(VENV)/dev
	@for folder in tests/e2e tests/e2e/vendored tests/e2e/axe tests/e2e/functions; do \
	  $(VENV)/bin/python tests/e2e/install.py $$folder || exit 1; done

# What decides whether a change is right: no verdict depends on how fast the machine is.
test: npm $(TOOLS)/done
	$(VENV)/bin/pytest -n $(TEST_WORKERS) --dist worksteal -m "not long and not timed" --timeout 600 \
	  -p no:schemathesis --ignore $(REQUESTS) $(FOLDERS) $(QUICK)

# The test files in which a pattern is found. To collect all tests takes a quarter of a minute of a core in every process.
with = $(sort $(shell grep -rlE --include 'test_*.py' --exclude-dir node_modules --exclude-dir soak --exclude-dir deploy \
  '$(1)' tests))

# The rest: kills, outages and attacks of many seconds, and hypothesis with more examples; then what is timed, alone.
test-long: npm
	@$(MAKE) --no-print-directory --jobs 2 --output-sync long requests
	$(VENV)/bin/pytest -p no:xdist -m timed --timeout 900 $(call with,mark[.]timed)

long: $(VENV)/dev
	$(VENV)/bin/pytest -n $(TEST_WORKERS) --dist worksteal -m "(long or hypothesis) and not timed" \
	  --hypothesis-profile long --timeout 900 $(filter-out $(REQUESTS),$(call with,mark[.]long|hypothesis))

requests: $(VENV)/dev
	$(VENV)/bin/pytest -q -p no:xdist --timeout 900 $(REQUESTS)

# The pictures of the console in the docs, of the pages as they are now. Needs Chromium.
pictures: $(VENV)/dev
	@PYTHONPATH=tests/support $(VENV)/bin/python tests/e2e/pictures.py docs/use/pictures

# The documentation as a site with a search, which needs no server. A warning, such as a broken link, is an error.
SITE ?= build/docs
docs: $(DOCS)/done
	@rm -rf $(SITE)
	@$(DOCS)/bin/sphinx-build --quiet --fail-on-warning --fresh-env --conf-dir docs/site --doctree-dir $(SITE).read . $(SITE)
	@echo "Open $(SITE)/index.html"

# The rooms, without programs that take long to start: half a minute. These tests hardly wait: a process for each core.
unit: $(VENV)/dev
	$(VENV)/bin/pytest -q -n auto --dist worksteal -p no:schemathesis \
	  -m "not long and not timed and not programs" tests/unit

# A hundred kills of processes and of PostgreSQL under load, on each engine, and as many of two relayers and of what
# writes a journal; SOAK_ROUNDS says how many. Then honest clients beside each attack of tests/support/attacking.py for
# a minute, as a table; ATTACK_SECONDS says how long. Then relayers: at a node with the limits of providers for
# PROVIDER_SECONDS, on a chain whose blocks are replaced REORGANISATIONS times, and an honest event ATTACK_ROUNDS (7) times
# beside each attack of tests/support/relayer_attacks.py.
soak: npm
	SOAK_ROUNDS=$${SOAK_ROUNDS:-100} $(VENV)/bin/pytest -s -p no:xdist tests/soak/test_kills.py \
	  tests/process/test_relayer.py::test_two_relayers_that_are_killed_again_and_again_lose_and_repeat_nothing \
	  tests/process/test_journal_killed.py::test_every_run_is_published_once_after_many_kills \
	  tests/soak/test_attacks.py
	REORGANISATIONS=$${REORGANISATIONS:-20} $(VENV)/bin/pytest -s -p no:xdist \
	  tests/soak/test_relayer_at_provider.py tests/process/test_relayer_reorganised.py tests/soak/test_relayer_attacks.py

# A hundred thousand broken requests to the server and, where nginx is installed, as many through it in two forms;
# FUZZ_REQUESTS says how many, FUZZ_SEED which.
fuzz: $(VENV)/dev
	$(VENV)/bin/pytest -s -p no:xdist tests/soak/test_broken_requests.py

# The files in deploy/, each with the program that reads it, pins at an IPFS node (245 MB of npm packages), and the site
# of the documentation. A program that is no Python package (kubectl, systemd-nspawn, buildah, actionlint) is used where
# it is installed; `-rs` names the tests that lack one. As root it also builds the image and boots a Debian, which need
# the Internet.
deploy-test: $(VENV)/dev $(TOOLS)/done $(DOCS)/done
	@$(VENV)/bin/python tests/e2e/install.py tests/deploy/ipfs
	$(VENV)/bin/pytest -rs -p no:xdist tests/deploy

# A PostgreSQL cluster under Patroni loses its primary HA_ROUNDS times (20) under load. Patroni, etcd and PostgreSQL must
# be installed; HA_SECONDS ends the rounds earlier.
ha-test: $(VENV)/dev
	HA_ROUNDS=$${HA_ROUNDS:-20} $(VENV)/bin/pytest -rs -s -p no:xdist tests/deploy/test_patroni.py

check: $(VENV)/dev
	@$(VENV)/bin/ruff check --no-cache --quiet && $(VENV)/bin/ruff format --no-cache --check --quiet
	@$(MAKE) --no-print-directory --jobs 2 --output-sync types contracts

types: $(VENV)/dev
	@$(VENV)/bin/basedpyright src bench

# Apart from `check`, which people run before each commit: this takes longer than all of that.
types-of-tests: $(VENV)/dev
	@$(VENV)/bin/basedpyright tests

contracts: $(VENV)/dev
	@$(VENV)/bin/lint-imports --no-logo
	@$(VENV)/bin/pytest -q -p no:xdist tests/contract/test_golden.py \
	  tests/contract/test_docs.py tests/contract/test_house.py tests/contract/test_figures.py
	@$(VENV)/bin/python tests/contract/house.py --quiet

# How large everything is, each figure with its ceiling (house.toml). RAISE=1 raises the ceilings that are too low: say in
# the commit why.
house: $(VENV)/dev
	@$(VENV)/bin/python tests/contract/house.py $(if $(RAISE),--raise)

format: $(VENV)/dev
	$(VENV)/bin/ruff check --no-cache --fix --quiet; $(VENV)/bin/ruff format --no-cache

golden: $(VENV)/dev
	$(VENV)/bin/python tests/contract/golden.py
	@$(VENV)/bin/python tests/contract/house.py --lower

lock: $(VENV)/bin/uv
	$(UV) pip compile --quiet --universal --generate-hashes --no-header --extra server -o requirements.lock pyproject.toml
	$(UV) pip compile --quiet --universal --generate-hashes --no-header --all-extras -c requirements.lock \
	  -o requirements-extras.lock pyproject.toml
	$(UV) pip compile --quiet --universal --generate-hashes --no-header --extra server -c requirements.lock --group dev \
	  -o requirements-dev.lock pyproject.toml
	$(UV) pip compile --quiet --universal --generate-hashes --no-header --group pyproject.toml:deploy \
	  -o requirements-deploy.lock
	$(UV) pip compile --quiet --universal --generate-hashes --no-header --group pyproject.toml:docs \
	  -o requirements-docs.lock

# The wheel and the source distribution. Two builds of one commit have the same bytes.
dist: $(VENV)/bin/uv
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(UV) build --quiet --out-dir dist

# The list of all packages that the service needs, with their licences. To be made again after `make lock`.
sbom: $(VENV)/dev $(TOOLS)/done
	$(VENV)/bin/python tests/contract/bill_of_materials.py $(TOOLS)/bin/cyclonedx-py
	$(VENV)/bin/python tests/contract/golden.py

bench: $(VENV)/dev
	@$(VENV)/bin/python bench/peers/install.py
	$(VENV)/bin/python bench/run.py $(ARGS)

bench-check: $(VENV)/dev
	@$(VENV)/bin/python bench/targets.py

clean:
	rm -rf .venv $(VENV) $(TOOLS) $(DOCS) build dist tests/e2e/node_modules tests/e2e/*/node_modules tests/deploy/ipfs/node_modules bench/peers/node_modules .ruff_cache .hypothesis
