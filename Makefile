# Sets itself up: `make run` and `make test` work in a fresh clone. Works with GNU make 3.81.

VENV := .venv
# Of the project, like [mlx,record]; a fresh environment is needed for others.
EXTRAS :=
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test lint types docs bench readme profiles constraints clean

run: $(READY)
	@$(BIN)/moesim run one-agent
	@echo
	@$(BIN)/moesim compare three-agents --with policy.mixed_quantum_tokens=128,2048

test: $(READY)
	$(BIN)/python -m pytest -n auto --ignore=tests/e2e/test_readme.py $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python -m pytest -q -n auto tests/e2e/test_readme.py tests/e2e/test_scenario_comments.py

bench: $(READY)
	$(BIN)/python tests/bench/bench_open_loop.py

# Write into the README, the pages and the race scenarios what their commands print now, and draw its picture.
readme: $(READY)
	$(BIN)/python -m figures.speed_by_quantum figures/drawn
	$(BIN)/python -m figures.ratio_by_context figures/drawn
	MOESIM_UPDATE_README=1 $(BIN)/python -m pytest -q tests/e2e/test_readme.py tests/e2e/test_scenario_comments.py

# Re-make the shipped profiles from calibration/data.
profiles: $(READY)
	$(BIN)/moesim calibrate --all-recipes -o calibration/profiles
	$(BIN)/python -m calibration.mlx.make

# Renew the pins (needs uv).
constraints:
	uv export --quiet --group dev --extra mlx --extra record --no-hashes --no-header --no-annotate --no-emit-project -o constraints.txt

$(READY): pyproject.toml constraints.txt
	@rm -f $@
	@sh -c ' \
	for python in python3.13 python3.12 python3.11 python3 python; do \
	  if $$python -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))" >/dev/null 2>&1; \
	  then break; fi; python=; \
	done; \
	if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --clear --python "$${python:->=3.11}" $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '\''.$(EXTRAS)'\'' --group dev; \
	elif [ -n "$$python" ]; then \
	  $$python -m venv --clear $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1" && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '\''.$(EXTRAS)'\'' --group dev; \
	else \
	  echo "moesim needs Python 3.11 or newer with venv: install it, or uv, and run make again" >&2; exit 1; \
	fi'
	@touch $@

clean:
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
