# Two commands do everything: `make run` and `make test`. The work itself is in scripts/, one small file for each job.

PYTHON ?= python3
CUDA ?= 1
FUZZ_SECONDS ?= 300
BENCH ?=
export PYTHON CUDA FUZZ_SECONDS JOBS

.DEFAULT_GOAL := help
.PHONY: help run test test-full test-asan test-tsan test-memcheck lint format fuzz bench bench-planner bench-cpu bench-cuda bench-train clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3   the interpreter; one that has torch 2.11 is used as it is, else .venv is made"
	@echo "  CUDA=0           build without CUDA, also where nvcc is found"
	@echo "  JOBS=N           compile N files at once (default: by cores and memory)"
	@echo "  BENCH='--quick'  further arguments for the benchmarks ('nimble bench --help' lists them)"
	@echo "  FUZZ_SECONDS=300 how long 'make fuzz' runs each harness"

run: ## Set up, build, and time five networks, eager and with Nimble
	@scripts/run.sh

test: ## Set up, build, and run the tests
	@scripts/test.sh

test-full: ## The tests and, beside them, those that take long
	@scripts/test.sh --full

test-asan: ## The C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/test-sanitized.sh asan

test-tsan: ## The C++ tests that need no libtorch under ThreadSanitizer
	@scripts/test-sanitized.sh tsan

test-memcheck: ## A small network on a GPU under compute-sanitizer
	@scripts/test-memcheck.sh

lint: ## Check the layout and the common mistakes of C++ and Python
	@scripts/lint.sh --check

format: ## Lay out all C++ and Python
	@scripts/lint.sh --fix

fuzz: ## Feed the readers broken input for FUZZ_SECONDS each
	@scripts/fuzz.sh

bench: ## Time everything on a GPU: tables, pictures, the paper's exhibits
	@scripts/bench.sh all $(BENCH)

bench-planner: ## Time the planner
	@scripts/bench.sh planner

bench-cpu: ## Time the engine on the CPU against what people use today
	@scripts/bench.sh cpu $(BENCH)

bench-cuda: ## Time the engine on a GPU against what people use today
	@scripts/bench.sh cuda $(BENCH)

bench-train: ## Time training steps on a GPU against what people use today
	@scripts/bench.sh train $(BENCH)

clean: ## Remove what was built (.venv stays)
	@rm -rf build build-asan build-tsan build-fuzz dist
