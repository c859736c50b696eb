# make demo   set up and see what it is about     make test   set up, lint, types and tests
# make check  lint and types only                 make bench  speed against other libraries
# make setup-browser    Chromium, in which tests look at the reports of studies (Debian, as root)
# make bench-gradients  speed and memory of the inner products of gradients
# make fuzz   hostile command lines and files, and kills: minutes, and a report
# make setup-envpool    the environments of EnvPool: the extra, and Qt for Procgen
# make clean  remove everything that was made

VENV   := .venv
PYTHON := $(VENV)/bin/python
PEERS  := .venv-peers
PIP    := -m pip install --quiet --disable-pip-version-check
EXTRAS := dev

# Where it is set, every process that tests start compiles all of src/ again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check lint types pytest format bench bench-gradients fuzz peers setup setup-browser setup-envpool clean

demo: $(VENV)/.core
	$(VENV)/bin/isobatch demo

test: lint
	@$(MAKE) --no-print-directory --jobs 2 types pytest

check: lint types

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.dev
	$(VENV)/bin/mypy

# One worker more than the two cores that it is meant for: some tests wait.
pytest: $(VENV)/.dev
	$(PYTHON) -m pytest -n 3 --dist loadgroup --no-loadscope-reorder

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# The libraries that the benchmark compares with, in an environment of their own.
bench: setup-envpool peers
	$(PYTHON) benchmarks/bench.py --peers-python $(PEERS)/bin/python

bench-gradients: $(VENV)/.core
	$(PYTHON) benchmarks/gram.py

fuzz: $(VENV)/.dev
	$(PYTHON) benchmarks/fuzz.py --kills 200

peers: $(PEERS)/.done

setup: $(VENV)/.dev

setup-browser:
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then exit 0; fi; \
	if ! command -v apt-get > /dev/null; then \
	  echo "setup-browser: this system has no apt-get: install Chromium so that \`chromium\` is found" >&2; exit 1; fi; \
	if [ "$$(id -u)" != 0 ]; then \
	  echo "setup-browser: installing Chromium needs root: sudo make setup-browser" >&2; exit 1; fi; \
	apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core

# Procgen needs a library of Debian's, which only root can install.
setup-envpool: $(VENV)/.core
	$(PYTHON) $(PIP) -c constraints.txt -e '.[envpool]'
	@$(PYTHON) -c 'import ctypes; ctypes.CDLL("libQt5Gui.so.5")' 2>/dev/null || \
	  { test "$$(id -u)" = 0 && apt-get update -q && apt-get install -y -q --no-install-recommends libqt5gui5; } || \
	  { echo "Procgen needs Qt, and installing it needs root: sudo apt-get install libqt5gui5"; exit 1; }

$(VENV)/.core: pyproject.toml constraints.txt
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(PYTHON) $(PIP) -c constraints.txt -e .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PYTHON) $(PIP) -c constraints.txt -e '.[$(EXTRAS)]'
	-$(PYTHON) $(PIP) -c constraints.txt --no-deps rl_zoo3  # tests read its hyperparameter files; without it a sample
	touch $@

$(PEERS)/.done: benchmarks/peers-constraints.txt
	test -x $(PEERS)/bin/python || python3 -m venv $(PEERS)
	$(PEERS)/bin/python $(PIP) -r benchmarks/peers-constraints.txt
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) build demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -o -name '*.egg-info' | xargs rm -rf
