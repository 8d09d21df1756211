# A fresh machine needs Python >= 3.10 and a C++ compiler; everything else comes into $(VENV).
#
#   make demo    install for a try, read the samples, print the report, replay one on the host
#   make test    lint, types, import contracts, native tests, test suite
#   make quick   what to run before a commit: lint, types, contracts, unit tests, about a minute
#   make coverage   the test suite with the lines that no test runs
#   make truth   the table of truth: answer, truth, inside (tests/truth/README.md)
#   make fuzz    fuzz the scanners under ASan and UBSan, with libFuzzer where clang is
#   make fuzz-native   the same of plans, tuner CSVs, pickles, the alignment and the graph's player
#   make fuzz-readers   damaged samples through every reader of Python
#   make torture   I/O faults, kills, and many processes on one store (tests/torture/README.md)
#   make integers   every number of every sample replaced by ones that nothing has (an hour)
#   make semantics   damaged inputs: no headline number may change silently (tests/damage)
#   make check-abi   hold the replayer against the real NCCL, RCCL, CUDA and HIP (1.5 GB download)
#   make check-slurm   launches under a real Slurm of two nodes on this host (root; see the script)
#   make bench   speed and memory against stated peers
#   make wheel   wheels for CPython 3.10 and later and glibc 2.28 into dist/
#   make image   a container image (podman, buildah or docker)
#   make tag     tags the version at the head of the changelog
#   make try-wheel   install each in a clean environment without a compiler, and use it
#   make try-wheel-old   the native parts on Debian bullseye's glibc (debootstrap, as root)
#   make venv    set up only
#   make clean   remove what was built ($(VENV) stays)

PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
STAMP := $(VENV)/.collscope-installed
TOOLS := $(VENV)/.collscope-tools
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
CXX_SOURCES := $(shell git ls-files '*.cpp' '*.h' 2>/dev/null)
NATIVE := CMakeLists.txt $(shell find native -name '*.cpp' -o -name '*.h')
SANITIZED := build/sanitized
FUZZ_ITERATIONS ?= 10000
FUZZ_SEED ?= 1
DAMAGES ?= 600
DAMAGES_SEED ?= 1
SEEDS := $(wildcard samples/rccl/*.log) samples/nccl/ddp/rank0.log samples/nccl/mixed/rank1.log

# With it every command that a test starts would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: venv demo test checks quick coverage lint types imports native pytest truth fuzz fuzz-native fuzz-readers torture integers \
	semantics check-abi check-slurm \
	bench clean image tag wheel try-wheel try-wheel-old

venv: $(STAMP)

# What compiles. The native tests need nothing else.
$(TOOLS): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) scikit-build-core nanobind mpich cmake ninja
	touch $@

# The extension is compiled by the installation, so it is repeated when a native source changes. With
# the tools of $(VENV), not with copies in a new folder, only what changed is compiled again.
$(STAMP): $(TOOLS) $(NATIVE) $(wildcard schemas/* schemas/views/*)
	MAKEFLAGS= PATH="$(BIN):$$PATH" $(PIP) --no-build-isolation -e '.[dev]'
	touch $@

# As users install it, without what development needs. A wheel in dist/ (make wheel) saves compiling.
# Reports are shown with the packages that they need; the rest is installed before the replay.
ALONE := $(abspath build/demo/bin)
DEMO := $(if $(wildcard $(STAMP)),$(BIN),$(ALONE))
DEMO_PIP := $(ALONE)/python -m pip install --quiet --disable-pip-version-check --no-compile

$(ALONE)/collscope:
	test -x $(ALONE)/python || $(PYTHON) -m venv build/demo
	$(DEMO_PIP) typer numpy msgspec zstandard "tomli; python_version < '3.11'"
	tag=$$($(ALONE)/python -c 'import sys; print("abi3" if sys.version_info >= (3, 12) else "cp%d%d" % sys.version_info[:2])') && \
	wheel=$$(ls dist/*-$$tag-*.whl 2>/dev/null | head -n 1) && \
	$(DEMO_PIP) --no-deps "$${wheel:-.}"

demo: $(DEMO)/collscope
	@db=$$(mktemp -d) && trap '{ set +x; } 2>/dev/null; rm -rf "$$db"' EXIT && \
	export COLLSCOPE_DB="$$db/demo.db" PATH="$(DEMO):$$PATH" PS4='$$ ' && set -x && \
	collscope ingest log samples/nccl/mixed && \
	collscope report && \
	collscope ingest log samples/rccl/guide-coll-klke.log --run guide && \
	collscope ingest profile samples/profiles/guide-top.txt --run guide && \
	collscope report --run guide && \
	$(if $(wildcard $(STAMP)),,$(DEMO_PIP) 'collscope[replay]' &&) \
	collscope replay --backend host --budget 0.1

test: checks pytest

# The native tests are compiled while packages are fetched and while the checks take one core each.
# (ninja counts its own jobs: it complains of those of a make that does not hand them on.)
checks:
	$(MAKE) --jobs=2 --output-sync=target lint types imports native

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/style.py
	$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES)

types: $(STAMP)
	$(BIN)/mypy --strict collscope

imports: $(STAMP)
	$(BIN)/lint-imports

native: $(TOOLS)
	$(BIN)/cmake -S . -B $(SANITIZED) -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja \
		-DMPI_CXX_COMPILER=$(BIN)/mpicxx -DCOLLSCOPE_SANITIZE=ON -DCOLLSCOPE_NATIVE_TESTS=ON
	MAKEFLAGS= $(BIN)/cmake --build $(SANITIZED)
	$(BIN)/ctest --test-dir $(SANITIZED) --parallel 2 --output-on-failure --no-tests=error

pytest: $(STAMP)
	$(BIN)/python -m pytest -n 2

# Tests of single modules: no MPI launch, browser, documentation block or recording.
quick: lint types imports
	$(BIN)/python -m pytest -n 2 -q tests/match tests/model tests/parsers tests/roofline \
		tests/store tests/test_kernel_names.py tests/test_stamps.py tests/test_writing.py

coverage: $(STAMP)
	$(BIN)/python -m pytest -n 2 --cov=collscope --cov-report=term:skip-covered

truth: $(STAMP)
	PYTHONPATH=tests $(BIN)/python tests/truth/harness.py

fuzz: $(STAMP)
	scripts/fuzz.sh build/fuzz $(BIN)/cmake $(BIN)/ninja $(BIN)/mpicxx $(FUZZ_ITERATIONS) $(FUZZ_SEED) logscan $(SEEDS)
	$(BIN)/python tests/trace_fuzz.py seeds build/fuzz/events.json
	scripts/fuzz.sh build/fuzz $(BIN)/cmake $(BIN)/ninja $(BIN)/mpicxx $(FUZZ_ITERATIONS) $(FUZZ_SEED) tracescan build/fuzz/events.json

fuzz-native: $(STAMP)
	$(BIN)/python tests/native_seeds.py build/fuzz/seeds
	for part in replayer tuner align play picklejson; do \
		scripts/fuzz.sh build/fuzz $(BIN)/cmake $(BIN)/ninja $(BIN)/mpicxx $(FUZZ_ITERATIONS) $(FUZZ_SEED) $$part \
			build/fuzz/seeds/$$part.* || exit 1; \
	done

fuzz-readers: $(STAMP)
	$(BIN)/python tests/fuzz_readers.py $(FUZZ_ITERATIONS) $(FUZZ_SEED)

torture: $(STAMP)
	PYTHONPATH=tests $(BIN)/python tests/torture/torture.py
	PYTHONPATH=tests $(BIN)/python tests/torture/recorder_kills.py

integers: $(STAMP)
	PYTHONPATH=tests $(BIN)/python tests/large_integers.py

semantics: $(STAMP)
	PYTHONPATH=tests $(BIN)/python tests/damage/semantics.py --seed $(DAMAGES_SEED) --damages $(DAMAGES)

# Needs no GPU, but Debian's apt and the network; everything stays below build/check-abi.
check-abi: $(STAMP)
	$(BIN)/cmake -S native/replayer -B build/check-abi/replayer \
		-DMPI_CXX_COMPILER=$(BIN)/mpicxx
	$(BIN)/cmake --build build/check-abi/replayer
	scripts/check_abi/check.sh build/check-abi build/check-abi/replayer/collscope-replayer \
		$(BIN)/python

check-slurm: $(STAMP)
	scripts/slurm/check.sh $(BIN)

wheel:
	scripts/wheels/build.sh

try-wheel:
	scripts/wheels/try.sh

try-wheel-old:
	scripts/wheels/try_old_glibc.sh

# A container image, with the first builder that is here.
image:
	@builder=$$(command -v podman || command -v buildah || command -v docker) || \
		{ echo "make image: no podman, buildah or docker. Install one."; exit 5; }; \
	$$builder build -f Containerfile -t collscope .

# The version at the head of the changelog, once it has a date.
tag:
	@version=$$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1); \
	if grep -q "^## $$version (unreleased)" CHANGELOG.md; then \
		echo "CHANGELOG.md: $$version is not released. Give it a date first."; exit 1; fi; \
	git tag -a "v$$version" -m "collscope $$version"

bench: $(STAMP)
	$(BIN)/python benchmarks/ingest.py

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find collscope tests docs benchmarks -name __pycache__ -prune -exec rm -rf {} +
