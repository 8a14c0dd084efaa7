# Every target does its own set-up; running one again does no work twice, and what one has built the
# others use.
#
#   make demo      run the main job; builds only what that needs
#   make test      build, then run the default tests
#   make test-all  run the long suites too
#   make test-versions  the main tests against every supported libtorch, in Debian chroots; needs root
#   make fuzz      give every reader of text and messages SECONDS=60 of bytes that nobody meant
#   make bench     run the benchmarks (GROUP=core, or ARGS="--json out.jsonl")
#   make faults    what a fault of one rank does to the others, beside PyTorch and MPI
#   make build     build everything, run nothing
#   make wheel     a wheel of the Python package, with the C++ headers and libraries, in build/wheel
#   make soak      faults of every kind in every state, for SECONDS=600
#   make lint      clang-tidy over the whole tree
#   make format    rewrite sources with clang-format
#   make clean     remove the build of PRESET (the downloaded libtorch stays)
#
# PRESET picks the kind of build: dev (default), debug, asan, tsan, core. Set-up installs what is missing:
# Debian packages if it is root, saying which, and Python packages under build/. SETUP=no installs nothing and
# names what is missing.

PRESET ?= dev
GROUP ?= all
BUILD := build/$(PRESET)
export SETUP ?= yes
export TSAN_OPTIONS ?= suppressions=$(CURDIR)/tests/tsan.supp
export ASAN_OPTIONS ?= detect_leaks=0:allocator_may_return_null=1
CTEST := ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j 2

.PHONY: configure build wheel demo test test-all test-versions fuzz soak bench faults lint format clean

configure:
	@scripts/setup $(PRESET) all
	@scripts/configure $(PRESET) all

build: configure
	@cmake --build $(BUILD)

# Of what is compiled in $(BUILD); `pip install .` compiles the library anew, in build/pip.
wheel: configure
	@cmake --build $(BUILD) --target tegula_core tegula tegula_testing tegula_cli _tegula
	@build/venv/bin/python -m pip wheel --no-deps -w build/wheel -C build-dir=build/wheel-files -C build.targets=all \
	  -C cmake.define.TEGULA_PREBUILT=$(CURDIR)/$(BUILD) .

demo:
	@scripts/demo $(PRESET)

test: build
	@$(CTEST) --label-exclude long

test-all: build
	@scripts/setup core fuzz
	@scripts/setup $(PRESET) models
	@$(CTEST)

test-versions:
	@scripts/test-versions

fuzz:
	@scripts/setup core fuzz
	@scripts/fuzz --seconds $(or $(SECONDS),60)

soak: build
	@OMP_NUM_THREADS=1 $(BUILD)/bin/soak $(or $(SECONDS),600)

bench: build
	@TEGULA_PYTHON=$(CURDIR)/build/venv/bin/python $(BUILD)/bin/tegula bench $(GROUP) $(ARGS)

faults: build
	@build/venv/bin/python bench/peers/faults.py $(BUILD)/bin

lint:
	@scripts/setup dev lint
	@scripts/lint

format:
	@scripts/setup core all
	@scripts/format --fix

clean:
	@rm -rf $(BUILD)
