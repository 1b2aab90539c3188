# Each target creates the environments that it needs. Required: Python 3.11 or later (3.10 without Airflow) with venv,
# make, and access to a package index. The environments are in .venv/. kfp and Airflow have separate ones, because kfp and
# Airflow's Kubernetes provider require different versions of the kubernetes client. requirements/ pins all versions.

# Container images often set it. Without its cache, each process of a test compiles all modules again: three times the work.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
UV := $(or $(shell command -v uv),.venv/uv/bin/uv)
IN = .venv/$(1)/bin
# $(call ENVIRONMENTS,NAMES): prerequisites that check Python and the free disk, and then create the missing environments.
ENVIRONMENTS = check-setup+$(subst $(SPACE),+,$(strip $(1))) $(patsubst %,.venv/%/.ready,$(1))
SPACE := $(subst ,, )
LAPTOP := core initializer torchtune
BACKENDS := laptop controlplane-2.3 controlplane-2.2 controlplane-2.1 controlplane-2.0
MEMBERS := core/pyproject.toml laptop/pyproject.toml migrate/pyproject.toml demo/pyproject.toml providers/airflow/pyproject.toml components/kfp/pyproject.toml

.PHONY: help demo demo-kfp pipelines docs check test test-core test-airflow test-kfp coverage airflow-versions e2e-airflow models smoke flaky controlplane conformance e2e slow system reliability watchdog migration bench reference site-versions sessions screenshots chromium lint types types-core types-airflow types-kfp dist bump workflows versions lock trl llamafactory sentence-transformers tracking-locks lm-eval clean kfp-terminations e2e-kfp gpu gpu-wheels
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

FRAMEWORK ?= torchtune
DEMO = $(call IN,core)/trainjob demo --engine $(1) --framework $(FRAMEWORK) --state .cache/demo \
       $(foreach name,initializer $(FRAMEWORK) $(1),--environment $(name)=.venv/$(name))
demo: $(call ENVIRONMENTS,core initializer $(FRAMEWORK) airflow) ## initialize, fine-tune and export a tiny model with an Airflow DAG, on a laptop cluster; FRAMEWORK=trl uses TRL
	@$(call DEMO,airflow)

demo-kfp: $(call ENVIRONMENTS,core initializer $(FRAMEWORK) kfp) ## run the same steps with a compiled Kubeflow pipeline
	@$(call DEMO,kfp)

CORE := tests/unit $(addprefix tests/integration/,client lifecycle programs security local packaging docs tracking supervision cli/test_command.py) \
        tests/chaos/crash_points/core tests/chaos/logs tests/chaos/takeover tests/chaos/threads
AIRFLOW_VERSIONS ?= 3.1 3.2
E2E_AIRFLOW ?= airflow airflow-3.1
AIRFLOW_EVIDENCE := $(CURDIR)/.cache/airflow-evidence
QUICK := -m "not slow and not flaky" --hypothesis-profile quick
check: $(call ENVIRONMENTS,core airflow kfp) lint types ## run the quick checks between two edits: style, types, unit tests
	$(call IN,core)/pytest -n 4 $(QUICK) tests/unit --ignore tests/unit/migrate

test: $(call ENVIRONMENTS,$(LAPTOP) tracking airflow kfp launcher) ## run lint, types and all quick tests
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint types
	@$(MAKE) --no-print-directory -j 3 --output-sync=target test-core test-airflow test-kfp

# Side by side, so that one suite computes while another waits. `+` shows the progress of the longest; the output of the others
# follows when they end.
test-core:
	+$(call IN,core)/pytest -n 4 $(QUICK) $(CORE)

test-airflow:
	$(call IN,airflow)/pytest -n 2 $(QUICK) tests/integration/airflow

test-kfp:
	$(call IN,kfp)/pytest -n 2 $(QUICK) tests/integration/kfp tests/chaos/crash_points/kfp

coverage: $(call ENVIRONMENTS,$(LAPTOP) tracking) ## measure which lines of the core its quick tests run, into .cache/coverage: a page for each module in html, and the figures in report.md
	rm -rf .cache/coverage
	$(call IN,core)/coverage run -m pytest -n 4 $(QUICK) $(CORE)
	$(call IN,core)/coverage combine -q
	$(call IN,core)/coverage html -q
	$(call IN,core)/coverage report --format=markdown > .cache/coverage/report.md
	@tail -n 1 .cache/coverage/report.md

airflow-versions: $(call ENVIRONMENTS,$(LAPTOP) $(AIRFLOW_VERSIONS:%=airflow-%)) ## run the quick tests of the Airflow provider on older versions of Airflow; AIRFLOW_VERSIONS="3.1 3.2" selects them
	for version in $(AIRFLOW_VERSIONS); do .venv/airflow-$$version/bin/pytest -n 4 $(QUICK) tests/integration/airflow || exit 1; done

smoke: $(call ENVIRONMENTS,$(LAPTOP) airflow kfp) ## run the demo's steps, a termination and the conformance suite on the laptop cluster and on one real control plane (Trainer 2.3); needs Go
	$(call IN,core)/python tests/controlplane/build.py --trainer 2.3 --argo --require-go
	$(call IN,core)/pytest -m "smoke and not flaky" tests/e2e/controlplane
	$(call IN,core)/pytest -n 3 -m "not flaky" tests/conformance --backend controlplane-2.3 --backend laptop

flaky: $(call ENVIRONMENTS,core airflow kfp) ## run each test that is marked flaky 20 times, and print its failure rate
	@$(call IN,core)/python tests/flaky.py

controlplane: $(call ENVIRONMENTS,core) ## build the real control planes (Trainer 2.0 to 2.3, Argo, Kueue, KServe's definitions) and kubectl from their Go modules, and cache them
	@$(call IN,core)/python tests/controlplane/build.py

e2e: $(call ENVIRONMENTS,$(LAPTOP) tracking trl llamafactory airflow kfp runtimes dist) controlplane dist ## run the demos, also from the wheels of make dist, the commands of the documentation, the real kubectl on the laptop cluster, and the tests on real control planes: conformance suite, examples, every trainer, Argo, Kueue
	$(call IN,core)/pytest tests/e2e/demo/test_demo.py tests/e2e/demo/test_wheels.py
	$(call IN,core)/pytest tests/e2e/docs/test_tutorials.py tests/e2e/docs/test_kubeflow_sdk_page.py
	$(call IN,core)/pytest -n 2 tests/e2e/docs/test_page_commands.py tests/e2e/local
	$(call IN,core)/pytest -n 3 tests/conformance $(BACKENDS:%=--backend %)
	$(call IN,core)/pytest tests/controlplane tests/e2e/controlplane tests/e2e/watchdog

e2e-kfp: ## run pipelines on the real back end of Kubeflow Pipelines 2.17; KFP_SOURCE=DIR is a checkout of kubeflow/pipelines; needs root, Go and Debian's package mariadb-server-core
	@"$(PYTHON)" tests/kfp_backend/build.py --source "$(KFP_SOURCE)"
	@$(MAKE) --no-print-directory $(patsubst %,.venv/%/.ready,$(LAPTOP) trl kfp launcher metadata_store)
	@$(call IN,core)/python tests/controlplane/build.py --trainer 2.3 --argo --require-go
	KFP_SOURCE="$(KFP_SOURCE)" $(call IN,kfp)/pytest tests/kfp_backend

e2e-airflow: $(call ENVIRONMENTS,$(LAPTOP) airflow airflow-3.1) ## run Airflow on PostgreSQL with two triggerers, with kills, outages and decisions of users, and write docs/evidence/airflow.md; E2E_AIRFLOW=airflow-3.1 selects the environment; needs Debian's packages postgresql, redis-server, chromium and chromium-driver, and Go for the real control plane
	$(call IN,core)/python tests/controlplane/build.py --trainer 2.3 --require-go
	rm -rf $(AIRFLOW_EVIDENCE)
	for name in $(E2E_AIRFLOW); do \
	  for tests in tests/e2e/airflow_postgresql tests/chaos/airflow_kills tests/integration/airflow/test_page.py \
	    "$(addprefix tests/e2e/airflow/test_airflow_,watching.py log_flood.py page.py many.py)"; do \
	    .venv/$$name/bin/pytest --postgresql --evidence $(AIRFLOW_EVIDENCE) $$tests || exit 1; \
	  done; \
	done
	PYTHONPATH=. $(call IN,core)/python tools/evidence/airflow_cases.py $(AIRFLOW_EVIDENCE)

slow: $(call ENVIRONMENTS,$(LAPTOP) tracking trl llamafactory sentence_transformers lm_eval airflow kfp launcher) ## run the slow tests: every TorchTune recipe, every method of LLaMA-Factory, the example of a framework, evaluations, terminated and lost launchers, the command, damaged input, every crash point, 2,000 waits under log faults
	$(call IN,core)/pytest tests/integration/torchtune
	$(call IN,core)/pytest tests/integration/trl tests/integration/llamafactory tests/integration/unsloth
	$(call IN,core)/pytest tests/integration/sentence_transformers
	$(call IN,core)/pytest tests/integration/evaluation
	$(call IN,core)/pytest -n 3 tests/unit tests/chaos/fuzz
	$(call IN,core)/pytest --hypothesis-profile long tests/integration/client/watch/test_watch_model.py
	$(call IN,core)/pytest -n 3 tests/integration/cli tests/e2e/demo/test_sessions.py
	$(call IN,core)/pytest -n 2 -m slow $(addprefix tests/integration/,programs lifecycle client local tracking docs) tests/conformance tests/chaos/crash_points/core tests/chaos/takeover
	$(call IN,core)/pytest -n 2 -m slow tests/chaos/logs
	$(call IN,kfp)/pytest -n 3 tests/integration/lifecycle tests/integration/client/test_connection.py
	$(call IN,kfp)/pytest -n 2 -m slow tests/integration/kfp tests/chaos/crash_points/kfp
	$(call IN,kfp)/pytest tests/chaos/kfp_pods
	$(call IN,airflow)/pytest -n 2 -m slow tests/integration/airflow

system: chromium $(call ENVIRONMENTS,$(LAPTOP) tracking trl llamafactory lm_eval airflow docs) ## run complete Airflow installations: every example, the page and the documentation site in a browser, 200 tasks on one watch, kills in every phase
	$(call IN,airflow)/pytest tests/e2e/airflow tests/e2e/docs/test_site.py tests/chaos/airflow_kills tests/chaos/crash_points/airflow

INSTALL_CHROMIUM := apt-get update && apt-get install -y chromium chromium-driver
chromium: ## install Debian's packages chromium and chromium-driver if they are missing; needs root
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then $(INSTALL_CHROMIUM); exit; fi; \
	echo "The browser tests and the screenshots need Debian's packages chromium and chromium-driver. Run as root:" >&2; \
	echo "$(INSTALL_CHROMIUM)" >&2; \
	exit 1

conformance: $(call ENVIRONMENTS,$(LAPTOP)) controlplane ## write docs/evidence/conformance.md: the results of the conformance suite on each cluster
	$(call IN,core)/pytest -n 3 tests/conformance $(BACKENDS:%=--backend %) --conformance-report docs/evidence/conformance.md

kfp-terminations: $(call ENVIRONMENTS,core kfp) ## terminate 100 pipeline runs, and lose 100 launchers' pods, at random times on the real Argo, and count the results in docs/evidence/reliability.md; takes 30 minutes
	$(call IN,core)/python tests/controlplane/build.py --trainer 2.3 --argo --require-go
	rm -rf $(EVIDENCE)
	$(call IN,core)/pytest -s tests/chaos/kfp_terminations --evidence $(EVIDENCE)
	PYTHONPATH=. $(call IN,core)/python tools/evidence/tables.py reliability $(EVIDENCE)

migration: $(call ENVIRONMENTS,core) ## write docs/evidence/migration.md: the results of converting public v1 jobs
	PYTHONPATH=. $(call IN,core)/python tools/evidence/migration.py

models: $(call ENVIRONMENTS,$(LAPTOP) trl) ## write docs/evidence/models.md: tiny models of 21 families through fetch, training, merge and export, and LoRA of all text models
	rm -rf .cache/models-evidence
	$(call IN,core)/pytest tests/integration/trl/test_families.py tests/integration/trl/test_text_architectures.py --evidence .cache/models-evidence
	PYTHONPATH=. $(call IN,core)/python tools/evidence/models.py .cache/models-evidence

# For a machine with one GPU and no network: PYTHON has torch, and the wheels are copied there beside the checkout.
GPU_WHEELS := .cache/gpu-wheels
GPU_PYTHON ?= 3.12
GPU_HAS ?= numpy pandas pyarrow
GPU_ARGUMENTS ?=
gpu: ## run trainings, resumptions, a merge and an export on one NVIDIA GPU, and write docs/evidence/gpu.md; needs no network, and a PYTHON with torch
	$(if $(wildcard $(GPU_WHEELS)/*.whl),"$(PYTHON)" -m pip install -q --no-index --no-deps --upgrade --target .cache/gpu-packages $(GPU_WHEELS)/*.whl)
	PYTHONPATH=$(CURDIR)/.cache/gpu-packages:$(CURDIR):$(CURDIR)/core/src:$(CURDIR)/laptop/src "$(PYTHON)" -m tools.gpu $(GPU_ARGUMENTS)

gpu-wheels: $(call ENVIRONMENTS,core) ## download the wheels for make gpu on a machine without network into .cache/gpu-wheels; GPU_PYTHON=3.12 is its Python, GPU_HAS the packages that it has besides torch
	rm -rf $(GPU_WHEELS)
	PYTHONPATH=. $(call IN,core)/python tools/gpu/wheels.py "$(PYTHON)" $(GPU_PYTHON) $(GPU_WHEELS) $(GPU_HAS)

EVIDENCE := $(CURDIR)/.cache/reliability
reliability: $(call ENVIRONMENTS,$(LAPTOP)) ## run all tests and a soak test, and write docs/evidence/reliability.md and docs/evidence/features.md from their results; takes two hours
	rm -rf $(EVIDENCE)
	PYTEST_ADDOPTS="--evidence $(EVIDENCE)" $(MAKE) test e2e slow system
	$(call IN,core)/python tools/evidence/soak.py --minutes 30 --evidence $(EVIDENCE)
	PYTHONPATH=. $(call IN,core)/python tools/evidence/tables.py reliability $(EVIDENCE)
	PYTHONPATH=. $(call IN,core)/python tools/evidence/features.py $(EVIDENCE)

watchdog: $(call ENVIRONMENTS,$(LAPTOP) airflow kfp) ## run 300 stub trainings with and without planted hangs, and 48 with torch as steps of Airflow and KFP, and write docs/evidence/watchdog.md; takes 25 minutes
	$(call IN,core)/python tests/controlplane/build.py --trainer 2.3
	rm -rf .cache/watchdog-evidence
	$(call IN,core)/pytest -n 5 tests/chaos/hangs --evidence .cache/watchdog-evidence
	$(call IN,core)/pytest tests/e2e/watchdog --evidence .cache/watchdog-evidence
	PYTHONPATH=. $(call IN,core)/python tools/evidence/tables.py watchdog .cache/watchdog-evidence

bench: $(call ENVIRONMENTS,core airflow kfp trl initializer torchtune) ## write docs/evidence/benchmarks.md: waiting, logs, submission, imports, creation, fetches and exports, compared with other projects; needs Debian's packages nginx-light and aria2, and Go
	PYTHONPATH=. $(call IN,airflow)/python tools/bench/bench.py --write

sessions: $(call ENVIRONMENTS,$(LAPTOP) airflow) ## write docs/evidence/sessions.md: terminal sessions of the demo and of the command trainjob
	$(call IN,core)/python tools/sessions/record.py

screenshots: chromium $(call ENVIRONMENTS,$(LAPTOP) airflow kfp) ## write docs/images: screenshots of Airflow, a loss curve and terminals, from real runs; KFP_SOURCE=DIR with a built front end adds the pipeline's graph
	KFP_SOURCE="$(KFP_SOURCE)" $(call IN,airflow)/python tools/screenshots/screenshots.py

SITE := .cache/site
docs: $(call ENVIRONMENTS,docs) ## build the documentation site into .cache/site/html, and check all links, anchors and references
	PYTHONPATH=. $(call IN,docs)/python tools/evidence/check_age.py
	PYTHONPATH=. $(call IN,docs)/python tools/docs/stage.py $(SITE) $(if $(VERSIONED),--versioned)
	cd $(SITE) && $(CURDIR)/$(call IN,docs)/zensical build --strict
	$(call IN,docs)/python tools/docs/search_index.py $(SITE)/html
	$(call IN,docs)/python tools/docs/check_reference.py $(SITE)/html/objects.inv
	@echo "the site: $(SITE)/html/index.html"

site-versions: ## assemble the published site in .cache/site/versions: the site of each release, of this checkout, and their list
	$(MAKE) docs VERSIONED=1
	rm -rf $(SITE)/versions
	$(call IN,docs)/python tools/docs/assemble_versions.py $(SITE)/html $(SITE)/versions

reference: $(call ENVIRONMENTS,core) ## write operators, components with their READMEs, and the pages of parameters, errors and command options from the code
	PYTHONPATH=. $(call IN,core)/python -m tools.parameters.write
	PYTHONPATH=. $(call IN,core)/python tools/reference/errors.py
	PYTHONPATH=. $(call IN,core)/python tools/reference/commands.py

# Paths for the language check. The changelog is not checked, because it contains old names.
LANGUAGE := $(filter-out CHANGELOG.md,$(wildcard *.md)) Makefile core components demo docs examples laptop manifests migrate providers tests tools

lint: $(call ENVIRONMENTS,core) ## check style, language, spelling and import contracts
	$(call IN,core)/ruff check .
	$(call IN,core)/ruff format --check .
	$(call IN,core)/python tools/language/check.py $(LANGUAGE)
	$(call IN,core)/codespell
	PYTHONPATH=providers/airflow/src:components/kfp/src $(call IN,core)/lint-imports

# Modules that tests import, and the tools, for the type check. DAGs, pipelines and start-up files are not checked, because
# other programs load them.
HELPERS := $(shell find tests -name '*.py' ! -name 'test_*' ! -name conftest.py ! -name pipelines.py ! -name secret_chain.py ! -name sitecustomize.py ! -path '*/dags*/*' ! -path '*/watching/*' ! -path '*/line_framework/*') \
           $(shell find tools -name '*.py' ! -path '*/dags/*')
AIRFLOW_HELPERS := $(filter-out tools/bench/bench_creation.py,$(filter tools/bench/% tools/screenshots/% tests/integration/airflow/% tests/e2e/airflow_postgresql/% tests/chaos/crash_points/airflow/% \
                     $(addprefix tests/support/,airflow_tasks.py airflow_versions.py api_proxy.py browser.py dag_examples.py dag_runner.py metric_receivers.py standalone.py),$(HELPERS)))
KFP_HELPERS := $(filter tools/bench/bench_creation.py tests/integration/kfp/% tests/kfp_backend/% tests/chaos/kfp_pods/% tests/e2e/controlplane/kfp_workflow.py \
                 $(addprefix tests/support/,component_runs.py emissary.py kfp_launcher.py kfp_pods.py),$(HELPERS))

# Tests whose names, attributes and calls are checked. They have no annotations, and their tables of cases mix types, so the
# kinds of errors that annotations would fix are off. A folder is added when it has no errors. mypy finds k3s.py, beside the folder
# k3s, only if it is named.
CHECKED_TESTS := $(shell find tests/conformance tests/controlplane tests/unit $(addprefix tests/chaos/,crash_points/core fuzz hangs kfp_terminations logs takeover threads) $(addprefix tests/e2e/,controlplane local watchdog) \
                   $(addprefix tests/integration/,cli client docs evaluation lifecycle llamafactory local packaging security supervision torchtune tracking trl unsloth) -name 'test_*.py' -o -name conftest.py) tests/conformance/k3s.py
TEST_OPTIONS := $(addprefix --allow-,untyped-defs incomplete-defs untyped-calls untyped-decorators any-generics subclassing-any) --no-warn-return-any --no-warn-unused-ignores \
                $(addprefix --disable-error-code=,arg-type dict-item index list-item misc operator union-attr var-annotated)

# Each environment has a cache of its own, because mypy would check all modules again after a run of another environment.
MYPY = $(call IN,$(1))/mypy --cache-dir .mypy_cache/$(1)
types: $(call ENVIRONMENTS,core airflow kfp) types-core types-airflow types-kfp ## check types with mypy (strict), in the environment of each engine

types-core: $(call ENVIRONMENTS,core)
	$(call MYPY,core) core/src laptop/src migrate/src $(SENTENCE_TRANSFORMERS)
	$(call MYPY,core) --exclude '/(dags|pipelines|tickets)/' demo/src
	MYPYPATH=tests/controlplane $(call MYPY,core) --explicit-package-bases $(filter-out $(AIRFLOW_HELPERS) $(KFP_HELPERS),$(HELPERS))
	MYPYPATH=tests/controlplane $(call IN,core)/mypy --cache-dir .mypy_cache/core-tests --explicit-package-bases $(TEST_OPTIONS) $(CHECKED_TESTS)

types-airflow: $(call ENVIRONMENTS,airflow)
	$(call MYPY,airflow) providers/airflow/src
	$(call MYPY,airflow) --explicit-package-bases $(AIRFLOW_HELPERS)

types-kfp: $(call ENVIRONMENTS,kfp)
	$(call MYPY,kfp) components/kfp/src
	MYPYPATH=tests/controlplane $(call MYPY,kfp) --explicit-package-bases $(KFP_HELPERS)

dist: $(call ENVIRONMENTS,core dist) ## build an sdist and a wheel of each package into dist/, check their metadata, and install them
	rm -rf dist
	for member in $(dir $(MEMBERS)); do $(UV) build -q --python "$(PYTHON)" --sdist --out-dir dist $$member || exit 1; done
	for archive in dist/*.tar.gz; do $(UV) build -q --python "$(PYTHON)" --wheel --out-dir dist $$archive || exit 1; done
	$(call IN,dist)/twine check --strict dist/*
	$(call IN,core)/pytest -m slow tests/integration/packaging

pipelines: $(call ENVIRONMENTS,kfp) ## compile the pipelines without code into dist/pipelines
	$(call IN,kfp)/python -m trainjob_kfp.pipelines dist/pipelines

bump: $(call ENVIRONMENTS,dist) ## set VERSION in all packages, in their dependencies on each other and in the golden files
	$(call IN,dist)/bump-my-version bump --new-version $(VERSION)

ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
workflows: $(call ENVIRONMENTS,dist) ## check the workflow files with actionlint, which needs Go, and with zizmor, which requests tags from GitHub if GH_TOKEN is set
	go run $(ACTIONLINT)
	$(call IN,dist)/zizmor --pedantic .github

versions: $(call ENVIRONMENTS,core torchtune initializer launcher) ## run quick tests on each Python from 3.10 to 3.13 that `uv python find` finds, and with the lowest allowed dependencies
	PYTHONPATH=. $(call IN,core)/python tests/integration/packaging/versions.py $(VERSIONS)

# Environments of the laptop cluster and of the demo, whose locks their wheels contain. The locks of .venv/airflow and .venv/kfp
# follow those of the demo, so they come last.
LAPTOP_REQUIREMENTS := laptop/src/trainjob_local/requirements
DEMO_REQUIREMENTS := demo/src/trainjob_demo/requirements

lock: $(UV) ## update all locks: those of the laptop cluster and of the demo, and requirements/*.txt, from the files *.in
	for file in $(LAPTOP_REQUIREMENTS)/*.in $(DEMO_REQUIREMENTS)/*.in requirements/*.in; do \
	  case $$file in */airflow*.in|*/docs.in|*/trl.in|*/lm_eval.in|*/llamafactory.in|*/sentence_transformers.in|*/metadata_store.in) lowest=3.11;; *) lowest=3.10;; esac; \
	  case $$file in \
	    */launcher-kfp.in) more=--no-deps;; \
	    */airflow-3.1.in) more="--exclude-newer 2026-03-12";; \
	    */airflow-3.2.in) more="--exclude-newer 2026-05-30";; \
	    *) more=;; \
	  esac; \
	  $(UV) pip compile -q --upgrade --universal --python-version $$lowest --generate-hashes $$more --custom-compile-command "make lock" $$file -o $${file%.in}.txt || exit 1; \
	done

TRL_VERSION = $(shell sed -n 's/^trl\[peft\]==//p' $(LAPTOP_REQUIREMENTS)/trl.in)
trl: $(call ENVIRONMENTS,trl) ## write the argument table and the package lock for the TRL that the laptop cluster's lock names
	PYTHONPATH=. $(call IN,trl)/python tools/trl/argument_table.py core/src/trainjob/frameworks/trl/argument_tables
	$(call IN,trl)/python tools/package_lock.py $(UV) $(LAPTOP_REQUIREMENTS)/trl.txt core/src/trainjob/frameworks/trl/pod/lock_$(subst .,_,$(TRL_VERSION)).py "TRL $(TRL_VERSION)" 3.11-3.13 trl peft

llamafactory: $(call ENVIRONMENTS,llamafactory) ## write the argument table for the LLaMA-Factory that the laptop cluster's lock names
	PYTHONPATH=. $(call IN,llamafactory)/python tools/llamafactory/argument_table.py core/src/trainjob/frameworks/llamafactory/argument_tables

# A package of another distribution; its tests have an environment of their own.
SENTENCE_TRANSFORMERS := examples/frameworks/sentence_transformers/src
SENTENCE_TRANSFORMERS_VERSION = $(shell sed -n 's/^sentence-transformers==//p' requirements/sentence_transformers.in)
sentence-transformers: $(call ENVIRONMENTS,sentence_transformers) ## write the package lock of the example of a framework
	$(call IN,sentence_transformers)/python tools/package_lock.py $(UV) requirements/sentence_transformers.txt $(SENTENCE_TRANSFORMERS)/trainjob_sentence_transformers/pod/lock_$(subst .,_,$(SENTENCE_TRANSFORMERS_VERSION)).py "sentence-transformers $(SENTENCE_TRANSFORMERS_VERSION)" 3.11-3.13 sentence-transformers accelerate datasets

# What the harness needs for few tasks only, and without wheels; pytablewriter prints the tables of its command.
lm-eval: $(call ENVIRONMENTS,lm_eval) ## write the package lock of lm-evaluation-harness, which the pods of evaluations install
	$(call IN,lm_eval)/python tools/package_lock.py $(UV) requirements/lm_eval.txt core/src/trainjob/frameworks/evaluation/lock.py "lm-evaluation-harness" 3.11-3.13 lm-eval transformers accelerate !rouge-score !word2number !sqlitedict !pytablewriter

TRACKING_LOCK = $(call IN,tracking)/python tools/package_lock.py $(UV) requirements/tracking.txt core/src/trainjob/frameworks/tracking/locks/
tracking-locks: $(call ENVIRONMENTS,tracking initializer) ## write the package locks of the libraries of experiment trackers, stores and datasets, which pods install
	$(TRACKING_LOCK)mlflow.py "mlflow" 3.11-3.13 mlflow-skinny psutil nvidia-ml-py
	$(TRACKING_LOCK)wandb.py "wandb" 3.11-3.13 wandb
	$(TRACKING_LOCK)tensorboardx.py "tensorboardX" 3.11-3.13 tensorboardX
	$(call IN,initializer)/python tools/package_lock.py $(UV) $(LAPTOP_REQUIREMENTS)/initializer.txt core/src/trainjob/frameworks/checkpoint_copies/lock.py "opendal" 3.11-3.13 opendal
	$(call IN,initializer)/python tools/package_lock.py $(UV) $(LAPTOP_REQUIREMENTS)/initializer.txt core/src/trainjob/programs/fetch/rows/lock.py "datasets" 3.11-3.13 datasets

clean: ## remove .venv and .cache: the environments, and the files of demo runs
	rm -rf .venv .cache

CHECK_SETUP = "$(PYTHON)" tools/check_setup.py --command "make $(MAKECMDGOALS)$(if $(filter-out torchtune,$(FRAMEWORK)), FRAMEWORK=$(FRAMEWORK))" --python "$(PYTHON)"
check-setup+%:
	@$(CHECK_SETUP) $(subst +, ,$*)

# $(call SET_UP,PYTHON,LOCKS): create an environment; on a terminal, uv shows its progress.
QUIET := $(shell test -t 2 || echo -q)
define SET_UP
@$(if $(filter $@,$(MAKECMDGOALS)),$(CHECK_SETUP) $(notdir $(@D)))
@echo "setting up $(@D)"
@$(UV) venv -q --allow-existing --python "$(1)" $(@D)
@$(UV) pip sync $(QUIET) --compile-bytecode --python $(@D) $(2)
@touch $@
endef

.venv/%/.ready: requirements/%.txt $(MEMBERS) | $(UV)
	$(call SET_UP,$(PYTHON),$<)

.venv/%/.ready: $(LAPTOP_REQUIREMENTS)/%.txt | $(UV)
	$(call SET_UP,$(PYTHON),$<)

# The components' image has these packages, and the wheels of this project. kfp is without its dependencies.
.venv/launcher/.ready: requirements/launcher.txt requirements/launcher-kfp.txt | $(UV)
	$(call SET_UP,$(PYTHON),$^)

# The metadata store of Kubeflow Pipelines has packages for Python 3.11 and older only.
.venv/metadata_store/.ready: requirements/metadata_store.txt | $(UV)
	$(call SET_UP,3.11,$<)

.venv/uv/bin/uv:
	@echo "fetching uv"
	@mkdir -p .venv; "$(PYTHON)" -m venv .venv/uv 2>.venv/uv.log || { cat .venv/uv.log >&2; false; } # no traceback after Ctrl-C
	@.venv/uv/bin/pip install $(QUIET) 'uv>=0.9,<0.14'
