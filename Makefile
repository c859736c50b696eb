# make demo   set up and see what it is about     make test   set up, lint, types and tests
# make check  lint and types only                 make bench  speed against other libraries
# make clean  remove everything that was made

VENV   := .venv
PYTHON := $(VENV)/bin/python
PIP    := $(PYTHON) -m pip install --quiet --disable-pip-version-check
EXTRAS := dev

.PHONY: demo test check format bench setup clean

demo: $(VENV)/.core
	$(VENV)/bin/isobatch demo

test: check
	$(PYTHON) -m pytest -n 2 --dist loadgroup

check: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

setup: $(VENV)/.dev

$(VENV)/.core: pyproject.toml constraints.txt
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(PIP) -c constraints.txt -e .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) -c constraints.txt -e '.[$(EXTRAS)]'
	-$(PIP) -c constraints.txt --no-deps rl_zoo3  # tests read its hyperparameter files; without it a sample
	touch $@

clean:
	rm -rf $(VENV) .venv-* build demo .jax_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -o -name '*.egg-info' | xargs rm -rf
