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

# The tests and the benchmarks as well.
everything: setup
	@cmake --preset $(PRESET) >/dev/null
	@cmake --build --preset $(PRESET) -j $(JOBS)

python: setup
	@scripts/setup python $(PRESET)

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
