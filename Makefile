# Motley. `make demo` and `make test` do all their own set-up; `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

TORCH_VERSION ?= 2.15.0
BUILD ?= build
JOBS ?= $(shell nproc)
ifeq ($(TORCH_VERSION),2.15.0)
VENV := .venv
else
VENV := .venv-$(TORCH_VERSION)
endif
PYTHON = $(if $(MOTLEY_PYTHON),$(MOTLEY_PYTHON),$(CURDIR)/$(VENV)/bin/python)
export PYTHONPATH := $(CURDIR)/python
export MOTLEY_DATA ?= $(CURDIR)/../shared/data

export TORCH_VERSION VENV BUILD JOBS

OTHER_SUITES := tests/zoo tests/gpu

# Models of packages that need an environment of their own: tests/zoo.
ZOO ?=

.PHONY: help setup build wheel demo test test-slow test-zoo test-hosts check bench sanitize fuzz docs format clean
help: ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 16

setup: ## system packages (as root or with sudo) and the Python environment
	@tools/setup.sh

build: ## build/motley and build/motley-worker, with what that needs
	@tools/build.sh product

wheel: ## packages for pip, into build/wheels: motley, and motley-worker-X-Y for the build's PyTorch
	@tools/wheel.sh

demo: ## trains two models on three emulated devices and checks itself; builds what that needs
	@tools/build.sh motley motley-worker
	@echo "[demo] two models on three emulated devices, checked"
	@$(BUILD)/motley demo $(if $(MOTLEY_PYTHON),--python $(MOTLEY_PYTHON))

test: ## C++ units, exporter, whole runs, faults, in a quarter of an hour; long sweeps are sampled. PARTS="units runs": some of it
	@tools/build.sh product unit_tests
	@PYTHON=$(PYTHON) tools/test.sh $(PARTS)

check: ## format, layers, names, reach: what CI runs before the tests; what is large, as a table
	@tools/setup.sh packages
	@tools/check_format.sh
	@python3 tools/check_layers.py
	@python3 tools/check_names.py
	@python3 tools/check_reach.py
	@python3 tools/check_sizes.py

sanitize: ## fast tests under ASan and UBSan (without PyTorch)
	@BUILD=$(BUILD)-asan CONFIGURE="-DMOTLEY_WORKER=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DMOTLEY_SANITIZE=address,undefined" tools/build.sh unit_tests
	@ctest --test-dir $(BUILD)-asan --output-on-failure -j $(JOBS) -L fast

test-slow: ## before a release: every model in every sweep, ten times the random cases, headers alone, benches compiled, pages, fuzzing
	@tools/build.sh product unit_tests benches
	@python3 tools/check_headers.py
	@MOTLEY_SLOW=1 RC_PARAMS=max_success=1000 ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)
	@MOTLEY_SLOW=1 MOTLEY_BUILD=$(CURDIR)/$(BUILD) $(PYTHON) -m pytest -q python/tests
	@MOTLEY_SLOW=1 MOTLEY_BUILD=$(CURDIR)/$(BUILD) $(PYTHON) -m pytest -q tests $(OTHER_SUITES:%=--ignore=%)
	@tools/setup.sh zoo
	@MOTLEY_SLOW=1 MOTLEY_BUILD=$(CURDIR)/$(BUILD) .venv-zoo/bin/python -m pytest -q tests/zoo
	@$(MAKE) docs
	@tools/fuzz.sh 60

test-zoo: ## models of torchvision, timm and transformers, small, against PyTorch's own loop: an hour; ZOO=resnet18 one of them
	@tools/build.sh product
	@tools/setup.sh zoo
	@MOTLEY_BUILD=$(CURDIR)/$(BUILD) .venv-zoo/bin/python tests/zoo/run.py $(ZOO)

test-hosts: ## as root: three machines (namespaces with an sshd each) from nothing to a trained model, and what goes wrong
	@tools/build.sh product
	@tools/setup.sh packages tools/packages_hosts.txt
	@MOTLEY_SLOW=1 MOTLEY_BUILD=$(CURDIR)/$(BUILD) $(PYTHON) -m pytest -q -rs tests/hosts

test-gpu: ## GPU acceptance tests, one per item of docs/gpu.md; without a GPU each is skipped by its name
	@tools/build.sh product bench_engine_driver run_torch_test
	@MOTLEY_BUILD=$(CURDIR)/$(BUILD) $(PYTHON) -m pytest -q -rs tests/gpu

fuzz: setup ## libFuzzer, a minute each parser
	@tools/fuzz.sh 60

BENCHES := scale adopt renting explain choices data engine gpu emulated measured parity placement placement_runs recipes tasks plan stages passes model_passes staged_plans staged_runs two_hosts harp hap spmd sharded_runs graph simulator flow_network own_runs export accuracy adapt elastic market unlike hosts browser
bench: $(BENCHES:%=bench-%) ## all benchmarks; make bench-NAME runs one and writes build/bench/NAME.json
bench-%:
	@tools/build.sh product benches
	@mkdir -p $(BUILD)/bench
	@if [ -f bench/$*.py ]; then MOTLEY_BUILD=$(CURDIR)/$(BUILD) $(PYTHON) bench/$*.py; else $(BUILD)/bench_$* $(if $(filter accuracy adapt market passes stages,$*),$(MOTLEY_DATA)) $(if $(filter accuracy,$*),$(BUILD)/bench/own_runs.json) $(BUILD)/bench/$*.json; fi

# Models of packages that only the zoo's environment has.
bench-adopt bench-export bench-plan bench-staged_plans bench-two_hosts: PYTHON := $(CURDIR)/.venv-zoo/bin/python
bench-adopt bench-export bench-plan bench-staged_plans bench-two_hosts: zoo
bench-browser: browser-packages
.PHONY: zoo browser-packages
browser-packages:
	@tools/setup.sh packages tools/packages_browser.txt
zoo:
	@tools/setup.sh zoo

docs: ## README.md and docs/ as HTML with a search, into build/docs; a link that leads nowhere is an error
	@tools/setup.sh docs
	@.venv-docs/bin/sphinx-build -q -a -W --keep-going -c docs/site . $(BUILD)/docs
	@echo "docs: $(BUILD)/docs/index.html"

format: ## clang-format on all sources
	@git ls-files '*.h' '*.cc' | xargs clang-format-14 -i

clean: ## removes the build
	@rm -rf $(BUILD)
