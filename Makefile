# Every target sets up .venv by itself; a second run starts at once. `make PYTHON=python3.12 …` chooses the interpreter.

PYTHON ?= python3
STAMP := .venv/.set_up
RUN := .venv/bin/python -m

.PHONY: help quickstart test test-slow check

help: ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1\t/' | expand -t 18

quickstart: $(STAMP) ## ask, simulate, train, measure; writes runs/quickstart/report.html
	$(RUN) cosmos_reason quickstart

test: $(STAMP) ## the tests, in minutes
	$(RUN) pytest -n 2 --dist loadfile -m "not slow" --limit-s 600

test-slow: $(STAMP) ## the tests that take longer
	$(RUN) pytest -n 2 --dist loadfile -m slow --limit-s 1200

check: $(STAMP) ## style and types
	$(RUN) ruff check
	$(RUN) mypy

$(STAMP): .ci/set_up pyproject.toml constraints.txt
	PYTHON="$(PYTHON)" sh .ci/set_up
	@touch $@
