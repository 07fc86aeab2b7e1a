# `make demo` shows it all at work; `make test` runs everything that must hold.
# Both first make .venv ready, again only when the project's dependencies have changed.

.PHONY: demo test

ENVIRONMENT := pyproject.toml setup.py constraints.txt scripts/environment $(wildcard src/infobus/objects/*.[ch])

demo: .venv/ready-to-run
	.venv/bin/infobus demo newsroom $(ARGS)

test: .venv/ready-to-test
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy --strict src
	.venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.venv/ready-to-run: $(ENVIRONMENT)
	scripts/environment sql,spark
	touch $@

.venv/ready-to-test: $(ENVIRONMENT)
	scripts/environment dev,bench,sql,spark
	touch $@ .venv/ready-to-run
