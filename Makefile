# `make run` measures the whole matrix, `make test` passes every test, `make check` those that need no lab and take
# no more than a minute; all install what is missing first.
.DEFAULT_GOAL := help
.PHONY: help run test check lint format style types shell unit lab-kernel install packages clean

PYTHON ?= python3
VENV := .venv

help:
	@echo 'make run    install what is missing, measure the whole matrix, print the table and whom to blame (about 6 minutes)'
	@echo 'make test   install what is missing, pass every test'
	@echo 'make check  formats, lint, types and the unit tests, in less than a minute (without a lab, without root)'
	@echo 'make lab-kernel   install what it needs, build the lab'"'"'s own kernel (about 5 minutes, once)'

run: install
	@echo 'The command is $(CURDIR)/$(VENV)/bin/harness; to have it as `harness`: . $(VENV)/bin/activate'
	$(VENV)/bin/harness run
	@newest=$$(ls -td results/*/ | head -n 1) && \
	  $(VENV)/bin/harness explain --summary "$$newest" && \
	  $(VENV)/bin/harness report "$$newest" -o "$${newest}report.html"

test: install
	@sh tools/install-packages.sh packages-test.txt
	@sh tools/install-packages.sh packages-paths.txt
	$(VENV)/bin/tox run-parallel --parallel 2

# Side by side, the longest first.
check: install $(VENV)/check
	@$(MAKE) --jobs 3 --output-sync=target --no-print-directory unit lint

lint: types style format shell

types:
	$(VENV)/bin/mypy

style:
	$(VENV)/bin/ruff check

format:
	$(VENV)/bin/ruff format --check

SCRIPTS := .ci/run harness/lab/init.sh harness/programs/facts.sh harness/programs/pppoe_session.sh \
  tests/lab/apart.sh tools/enter-root.sh tools/install-packages.sh tools/make-root.sh tools/try-on.sh

shell:
	shellcheck --severity=warning $(SCRIPTS)

unit:
	$(VENV)/bin/pytest -q -n auto tests/unit

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
	rm -rf $(VENV) .tox .mypy_cache .ruff_cache .pytest_cache
