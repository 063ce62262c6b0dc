# `make run` measures the whole matrix, `make test` shows in ten minutes that the promises hold, `make test-all` runs
# every lane, `make check` what needs no lab and ends within a minute. All install what is missing first.
.DEFAULT_GOAL := help
.PHONY: help kernel run reproduce test test-all ready all-packages long check lint types style format imports shell unit pure docs site lab-kernel release install packages clean

PYTHON ?= python3
VENV := .venv
ALL_PACKAGES := .all-packages.txt

SCRIPTS := .ci/run harness/testbeds/lab/boot/init.sh harness/testbeds/programs/facts.sh \
  $(wildcard harness/network/paths/*/programs/*.sh) tests/lab/isolated.sh $(wildcard tools/*.sh)

help:
	@echo 'make run    install what is missing, measure the whole matrix, print the table, what each column costs and why (about 5 minutes)'
	@echo 'make reproduce   install what is missing, measure what five published articles measured, write one page (half an hour)'
	@echo 'make test   install what is missing, run the unit tests and the real stack in short (up to 10 minutes on two cores)'
	@echo 'make test-all   install what is missing, run every lane, stock machines included (up to an hour)'
	@echo 'make long   the tests that `make test-all` has no time for (an hour more)'
	@echo 'make check  install what is missing, then format, lint, types, import rules and the unit tests that start no programs (a minute)'
	@echo 'make unit   all unit tests (two minutes)'
	@echo 'make docs   install what is missing, build the docs as a site in site/'
	@echo 'make release   build source, wheel, Debian package and container image in dist/, and try each as installed'
	@echo 'make lab-kernel   install what it needs, build the lab'"'"'s custom kernel (about 5 minutes, once)'

# The lab's kernel: Debian's with the ciphers of this processor, where they can be built for it; or where there is no
# such package, the lab's own, in which they are.
kernel: install
	@if command -v linux.uml >/dev/null; then \
	  sh tools/install-packages.sh packages-ciphers.txt; \
	  $(VENV)/bin/harness kernel ciphers || echo "So the lab's IPsec is generic code, which the table says."; \
	else \
	  echo "No user-mode kernel is installed here: the lab takes one of its own, which is built now (about 5 minutes, once)."; \
	  sh tools/install-packages.sh packages-kernel.txt; \
	  $(VENV)/bin/harness kernel build; \
	fi

run: kernel
	@echo 'The command is $(CURDIR)/$(VENV)/bin/harness; to have it as `harness`: . $(VENV)/bin/activate'
	$(VENV)/bin/harness run

reproduce: kernel
	@sh tools/install-packages.sh packages-paths.txt
	$(VENV)/bin/harness reproduce --run

test:
	@echo 'Up to 10 minutes on two cores, with what is missing installed on the way.'
	@$(MAKE) --no-print-directory --jobs 2 ready
	@$(VENV)/bin/python -m tests.lanes

test-all: ready
	@echo 'Up to an hour on two cores.'
	$(VENV)/bin/python -m tests.lanes --all

long: ready
	$(VENV)/bin/python -m tests.lanes long

# What tests need: packages and environment, at the same time where that is possible.
ready: all-packages $(VENV)/docs

all-packages:
	@cat packages.txt packages-test.txt packages-paths.txt >$(ALL_PACKAGES)
	@sh tools/install-packages.sh $(ALL_PACKAGES)
	@rm -f $(ALL_PACKAGES)

# Side by side, so that no processor waits. `tox -e lint` and the hooks of .pre-commit-config.yaml make parts of it.
check: install $(VENV)/check
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target pure lint

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

# Four processes, because half of the time a test waits for another program or a clock.
unit: install $(VENV)/check
	$(VENV)/bin/pytest -q -n 4 --dist worksteal tests/unit

# Without those that start programs, which take half of the processors' time.
pure:
	$(VENV)/bin/pytest -q -n 3 --dist worksteal -m "not thorough" tests/unit

docs: install $(VENV)/docs
	@$(MAKE) --no-print-directory site
	@echo 'a site to look at: site/index.html'

site:
	$(VENV)/bin/sphinx-build -q -W --keep-going -c docs . site

lab-kernel: install
	@sh tools/install-packages.sh packages-kernel.txt
	$(VENV)/bin/harness kernel build

release: install $(VENV)/check
	sh tools/release.sh

install: packages $(VENV)/installed

# The environment first, so that there is a `harness doctor` whatever becomes of the packages; but it may need one.
ifeq ($(shell $(PYTHON) -c 'import ensurepip' 2>/dev/null && echo yes),yes)
packages: $(VENV)/installed
else
$(VENV)/installed: | packages
endif

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

$(VENV)/docs: pyproject.toml $(VENV)/check
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

clean:
	rm -rf site $(VENV) .tox .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
