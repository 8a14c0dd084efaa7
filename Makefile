# Every target does its own set-up; running one again does no work twice.
#
#   make demo      run the main job
#   make test      build, then run the default tests
#   make test-all  run the long suites too
#   make bench     run the benchmarks (GROUP=core, or ARGS="--json out.jsonl")
#   make build     build everything, run nothing
#   make lint      clang-tidy over the whole tree
#   make format    rewrite sources with clang-format
#   make clean     remove the build of PRESET (the downloaded libtorch stays)
#
# PRESET picks the kind of build: dev (default), release, asan, tsan, core.

PRESET ?= dev
GROUP ?= all
BUILD := build/$(PRESET)
export TSAN_OPTIONS ?= suppressions=$(CURDIR)/tests/tsan.supp
CTEST := ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j 2

.PHONY: build demo test test-all bench lint format clean setup

setup:
	@scripts/setup $(PRESET)

# Ninja re-runs CMake by itself when a CMake file changes.
$(BUILD)/build.ninja: | setup
	@cmake --preset $(PRESET) $(if $(CI),-DTEGULA_WERROR=ON) $(if $(filter core,$(PRESET)),,-DTorch_DIR="$$(cat build/setup/torch-dir)")

build: setup $(BUILD)/build.ninja
	@cmake --build $(BUILD)

demo: build
	@scripts/demo $(BUILD)

test: build
	@$(CTEST) --label-exclude long

test-all: build
	@$(CTEST)

bench: build
	@TEGULA_PYTHON=$(CURDIR)/build/venv/bin/python $(BUILD)/bin/tegula bench $(GROUP) $(ARGS)

lint: build
	@scripts/lint $(BUILD)

format:
	@scripts/format --fix

clean:
	@rm -rf $(BUILD)
