# Every target does its own set-up; running one again does no work twice, and what one has built the
# others use.
#
#   make demo      run the main job; builds only what that needs
#   make test      build, then run the default tests
#   make test-all  run the long suites too
#   make test-versions  the main tests against every supported libtorch, in Debian chroots; needs root
#   make bench     run the benchmarks (GROUP=core, or ARGS="--json out.jsonl")
#   make build     build everything, run nothing
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
CTEST := ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j 2

.PHONY: configure build demo test test-all test-versions bench lint format clean

configure:
	@scripts/setup $(PRESET) all
	@scripts/configure $(PRESET) all

build: configure
	@cmake --build $(BUILD)

demo:
	@scripts/demo $(PRESET)

test: build
	@$(CTEST) --label-exclude long

test-all: build
	@$(CTEST)

test-versions:
	@scripts/test-versions

bench: build
	@TEGULA_PYTHON=$(CURDIR)/build/venv/bin/python $(BUILD)/bin/tegula bench $(GROUP) $(ARGS)

lint: build
	@scripts/setup $(PRESET) lint
	@scripts/lint $(BUILD)

format:
	@scripts/setup core all
	@scripts/format --fix

clean:
	@rm -rf $(BUILD)
