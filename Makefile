# Everything sets itself up: needs Python >=3.10 with venv, make and a package registry. The environments lie in .venv/, one
# for each engine, as kfp and Airflow's Kubernetes provider want different kubernetes clients; versions are locked in requirements/.

PYTHON ?= python3
UV := $(or $(shell command -v uv),.venv/uv/bin/uv)
IN = .venv/$(1)/bin
LAPTOP := .venv/core/.ready .venv/initializer/.ready .venv/torchtune/.ready
MEMBERS := core/pyproject.toml providers/airflow/pyproject.toml components/kfp/pyproject.toml

.PHONY: help demo demo-kfp test lint types lock clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(LAPTOP) .venv/airflow/.ready ## initialize, fine-tune and export a tiny model from an Airflow DAG, on a laptop cluster
	@$(call IN,core)/python examples/demo.py airflow

demo-kfp: $(LAPTOP) .venv/kfp/.ready ## the same from a compiled Kubeflow pipeline
	@$(call IN,core)/python examples/demo.py kfp

test: $(LAPTOP) .venv/airflow/.ready .venv/kfp/.ready lint types ## every check and test
	$(call IN,core)/pytest tests/unit tests/local tests/export tests/run tests/examples
	$(call IN,kfp)/pytest tests/run tests/kfp
	$(call IN,airflow)/pytest tests/airflow

lint: .venv/core/.ready ## style and import contracts
	$(call IN,core)/ruff check .
	$(call IN,core)/ruff format --check .
	$(call IN,core)/lint-imports

types: .venv/core/.ready .venv/airflow/.ready .venv/kfp/.ready ## strict types, in each engine's environment
	$(call IN,core)/mypy core/src examples/demo.py
	$(call IN,airflow)/mypy providers/airflow/src
	$(call IN,kfp)/mypy components/kfp/src

lock: $(UV) ## write requirements/*.txt anew from requirements/*.in
	for file in requirements/*.in; do \
	  $(UV) pip compile -q --upgrade --universal --python-version 3.10 --custom-compile-command "make lock" $$file -o $${file%.in}.txt || exit 1; \
	done

clean: ## remove environments and what demo runs left
	rm -rf .venv .cache

.venv/%/.ready: requirements/%.txt $(MEMBERS) | $(UV)
	@echo "setting up .venv/$*"
	@$(UV) venv -q --allow-existing --python $(PYTHON) .venv/$*
	@$(UV) pip sync -q --compile-bytecode --python .venv/$* requirements/$*.txt
	@touch $@

.venv/uv/bin/uv:
	@echo "fetching uv"
	@$(PYTHON) -m venv .venv/uv
	@.venv/uv/bin/pip install -q 'uv>=0.9,<0.14'
