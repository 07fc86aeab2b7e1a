# `make demo` shows the bus at work, `make test` runs all checks and tests, and `make check` only
# those that take a minute or two. Each of them first prepares .venv, but only if the dependencies
# of the project have changed.

.PHONY: demo check test lint types

ENVIRONMENT := pyproject.toml setup.py constraints.txt scripts/environment $(wildcard src/infobus/objects/*.[ch])
PYTEST := .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Rooms whose tests only compute; the few tests there that do more are marked `world`.
PURE_ROOMS := objects tdl filters protocols
PURE_TESTS := $(PURE_ROOMS:%=tests/%) tests/simulation $(wildcard tests/test_*.py)
PURE_EXAMPLES := $(PURE_ROOMS:%=src/infobus/%) $(wildcard src/infobus/*.py)

demo: .venv/ready-to-run
	.venv/bin/infobus demo newsroom $(ARGS)

# The simulators run 100 seeds each here, and 2,000 in `make test`.
check: lint types
	INFOBUS_SIM_SEEDS=100 $(PYTEST) -m 'not world' $(PURE_TESTS) $(PURE_EXAMPLES)

# Two tests run at a time. If one fails, it runs once more, alone, and must pass then. A test that
# passes only alone is a bug.
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
