# `make run` measures the whole matrix, `make test` runs every test, `make check` those that need no lab and end within
# a minute. All install what is missing first.
.DEFAULT_GOAL := help
.PHONY: help run test check lint types style format imports shell unit lab-kernel install packages clean

PYTHON ?= python3
VENV := .venv

SCRIPTS := .ci/run harness/testbeds/lab/init.sh harness/testbeds/programs/facts.sh \
  harness/network/paths/programs/pppoe_session.sh tests/lab/apart.sh tools/enter-root.sh tools/install-packages.sh \
  tools/make-root.sh tools/try-on.sh

help:
	@echo 'make run    install what is missing, measure the whole matrix, print the table, what each column costs and why (about 6 minutes)'
	@echo 'make test   install what is missing, run every test'
	@echo 'make check  install what is missing, then format, lint, types, import rules and unit tests (a minute; no lab)'
	@echo 'make lab-kernel   install what it needs, build the lab'"'"'s own kernel (about 5 minutes, once)'

run: install
	@echo 'The command is $(CURDIR)/$(VENV)/bin/harness; to have it as `harness`: . $(VENV)/bin/activate'
	$(VENV)/bin/harness run

test: install
	@sh tools/install-packages.sh packages-test.txt
	@sh tools/install-packages.sh packages-paths.txt
	$(VENV)/bin/tox run-parallel --parallel 2

# Side by side, so that no processor waits. `tox -e lint` and the hooks of .pre-commit-config.yaml make parts of it.
check: install $(VENV)/check
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target unit lint

lint: types imports style format shell

types:
	$(VENV)/bin/mypy

style:
	$(VENV)/bin/ruff check

format:
	$(VENV)/bin/ruff format --check

imports:
	$(VENV)/bin/lint-imports

shell:
	shellcheck --severity=warning $(SCRIPTS)

unit:
	$(VENV)/bin/pytest -q -n 2 --dist worksteal tests/unit

lab-kernel: install
	@sh tools/install-packages.sh packages-kernel.txt
	$(VENV)/bin/harness kernel build

install: packages $(VENV)/installed

# Root is needed for system packages and for nothing else.
packages:
	@sh tools/install-packages.sh packages.txt

$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable . 'tox>=4.18'
	@touch $@

$(VENV)/check: pyproject.toml $(VENV)/installed
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .tox .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
