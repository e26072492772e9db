# make        the release command at build/tilewright
# make demo   installs what is missing, builds, runs a chain and a network the whole way, ends with two pictures
# make test   everything that a machine without a GPU can test
# make test-long  emitted kernels at full length: every row of the papers' tables, 300 random plans a kind
# make sanitize  the unit tests under the address and undefined-behaviour sanitizers; make dev: all
# make fuzz   every parser, FUZZ_SECONDS (60) each, with libFuzzer
# make docs   the documentation as a site, out/site/index.html, and slides of the course, out/site/slides/index.html
# make explore  a page that answers without the command, out/site/explore/index.html (compiles all models once more)
# make bench  speeds beside oneDNN, OpenBLAS, BLIS and the machine's own limits; ARGS="--rows G2 --json FILE"
SHELL := /bin/bash
.DEFAULT_GOAL := build
PRESET ?= release
# Leave one core's worth of memory for each job; Eigen and Boost.Graph are large.
JOBS ?= $(shell nproc)
VENV := .venv

.PHONY: docs explore build everything demo test test-long bench setup python clean dev sanitize fuzz format

setup:
	@scripts/setup system

build: setup
	@cmake --preset $(PRESET) >/dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target tilewright

# The tests and the benchmarks as well. With STRICT=1 a warning fails the build. It is found in the log and not by
# -Werror, so that ccache gives CI the objects of an ordinary build.
everything: setup
	@cmake --preset $(PRESET) >/dev/null
	@set -o pipefail; log=$$(mktemp); trap 'rm -f $$log' EXIT; \
	  cmake --build --preset $(PRESET) -j $(JOBS) | tee $$log || exit; \
	  if [ "$(STRICT)" = 1 ] && grep -q 'warning:' $$log; then \
	    echo 'warnings, which STRICT=1 takes as errors:' >&2; grep 'warning:' $$log | sort -u >&2; exit 1; fi

python: setup
	@scripts/setup python

demo: build
	@scripts/setup plots
	@scripts/demo

test: everything
	@scripts/test $(PRESET)

test-long: everything
	@TILEWRIGHT_LONG=1 TILEWRIGHT_CASES=300 ctest --preset $(PRESET) --output-on-failure --timeout 3600 \
	  -R '^(CudaFamilies|RandomCudaKernels|RandomKernels)'

docs: build python
	@scripts/site
	@PATH="$(CURDIR)/build:$$PATH" $(VENV)/bin/python scripts/slides

explore: setup
	@scripts/setup explore
	@scripts/explore $(JOBS)

bench: setup
	@scripts/setup bench
	@cmake --preset $(PRESET) >/dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS) --target tilewright-bench
	@build/tilewright-bench $(ARGS)

dev:
	@$(MAKE) test PRESET=dev

sanitize: setup
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev -j $(JOBS)
	@ctest --preset dev -j $(JOBS) -L unit

fuzz: setup
	@scripts/setup fuzz
	@cmake --preset fuzz >/dev/null
	@cmake --build --preset fuzz -j $(JOBS)
	@scripts/fuzz

format:
	@git ls-files '*.h' '*.cpp' | xargs clang-format -i

clean:
	@rm -rf build build-python out $(VENV)
