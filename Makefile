# `make demo` shows it all at work; `make test` runs everything that must hold, and `make check`
# the part of it that takes a minute or two. Each first makes .venv ready, again only when the
# project's dependencies have changed.

.PHONY: demo check test lint types

ENVIRONMENT := pyproject.toml setup.py constraints.txt scripts/environment $(wildcard src/infobus/objects/*.[ch])
PYTEST := .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Rooms whose tests only compute. The few among them that do more are marked `world`.
PURE_ROOMS := objects tdl filters protocols
PURE_TESTS := $(PURE_ROOMS:%=tests/%) tests/simulation $(wildcard tests/test_*.py)
PURE_EXAMPLES := $(PURE_ROOMS:%=src/infobus/%) $(wildcard src/infobus/*.py)

demo: .venv/ready-to-run
	.venv/bin/infobus demo newsroom $(ARGS)

# The simulators run 100 seeds each here, and 2,000 in `make test`.
check: lint types
	INFOBUS_SIM_SEEDS=100 $(PYTEST) -m 'not world' $(PURE_TESTS) $(PURE_EXAMPLES)

# What fails among two at a time runs once more, alone, and must pass then. Each such test is a bug.
test: lint types
	$(PYTEST) --durations=25 || { test $$? -eq 1 && echo "Once more, alone: what failed" && \
	.venv/bin/python -m pytest -x -v --last-failed --last-failed-no-failures none; }

lint: .venv/ready-to-test
	.venv/bin/ruff check
	.venv/bin/ruff format --check

types: .venv/ready-to-test
	.venv/bin/mypy --strict src

.venv/ready-to-run: $(ENVIRONMENT)
	scripts/environment sql,spark
	touch $@

.venv/ready-to-test: $(ENVIRONMENT)
	scripts/environment dev,bench,sql,spark
	touch $@ .venv/ready-to-run
