# BIN is where the tools of the environment lie.
BIN ?= .venv/bin

.PHONY: check test format docs

check:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test:
	$(BIN)/python -m pytest -q -n auto -m "not slow"

format:
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: # the site, into site/; needs `pip install -e '.[docs]'`
	$(BIN)/mkdocs build --strict
