# Every target sets up what it needs (scripts/setup.sh) and asks nothing.
BIN := .venv/bin
# The longest first; two files at a time, as much of a test is waiting.
TIERS := tests/integration tests/weave tests/nano tests/pretraining tests/unit

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-acceptance test-corpus test-agents test-security test-docs test-web pictures test-vllm test-trl test-tuning weights check house chaos loop bench bench-corpus bench-agents lock clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1: \2/p' Makefile

setup: ## the virtual environment .venv, bubblewrap, tmux and nano
	@bash scripts/setup.sh

demo: setup ## eight games of tic-tac-toe by a small language model, everything on this machine
	@$(BIN)/weavegen demo

test: setup ## unit and integration tests, with real services and the sandbox; under ten minutes
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(TIERS)

test-acceptance: setup ## whole installations, with workers that write traces, crash, and go on; ten minutes
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/acceptance

test-corpus: setup ## what is made of the corpus: exports, releases, rescoring, forks, views, reports, metrics
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/corpus

test-agents: setup ## agents that converse, requests, searches for programs, shared pools
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/agents

test-security: setup ## what SECURITY.md and docs/audit.md promise: attacks, fuzzing, damage that the auditor finds
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/security tests/audit tests/fuzz

test-docs: setup ## every command, query and link in the documents
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/docs

test-web: ## the viewer and Flower in the system's Chromium; fetches axe-core from npm
	@bash scripts/setup.sh chromium npm
	@$(BIN)/python -m pytest -s tests/web

pictures: ## the pictures in docs/images, from installations of their own; three minutes
	@bash scripts/setup.sh chromium
	@$(BIN)/python -m tests.web.pictures
	@$(BIN)/python -m tests.acceptance.terminal_pictures docs/images
	@WEAVEGEN_PICTURES=1 $(BIN)/python -m pytest tests/web/test_flower.py

test-vllm: setup ## the model client against a real vLLM on the CPU; installs 3.5 GB
	@bash scripts/vllm.sh install
	@$(BIN)/python -m pytest tests/vllm

test-trl: setup ## exports in the hands of TRL's trainers on the CPU; installs 1.7 GB
	@bash scripts/trl.sh install
	@$(BIN)/python -m pytest tests/trl

test-tuning: setup ## a turn of the tuning loop with a small model from scratch, on the CPU; ten minutes
	@bash scripts/trl.sh install
	@$(BIN)/python -m pytest tests/tuning

weights: setup ## a small model from nothing: traces of the simulation, then training; an hour and a half
	@bash scripts/trl.sh install
	@bash pretraining/make_weights.sh

loop: setup ## a weak model learns from its own traces, twice, beside a control; an hour, and the table in README.md
	@bash scripts/trl.sh install
	@$(BIN)/python -m bench loop

# Away from the network nothing is known of dependencies, which is said, and nothing fails.
check: setup ## lint, format, types, imports between rooms, known vulnerabilities of what requirements.lock names
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tests.security.audit

house: setup ## size and structure of the code beside their bounds
	@$(BIN)/python scripts/house.py

chaos: setup ## ten minutes of faults while traces are written, three times; an audit after each
	@for seed in 1 2 3; do $(BIN)/python -m tests.chaos --seed $$seed || exit 1; done

bench: setup ## how much it does, and how fast
	@$(BIN)/python -m bench

bench-corpus: setup ## of these: SQL, search and exports, on up to a million blocks; half an hour, 10 GB
	@$(BIN)/python -m bench corpus_sql retrieval exports

bench-agents: setup ## of these: the weave agent beside ReAct, on the same tasks, model and tokens
	@$(BIN)/python -m bench agents

lock: ## requirements.lock anew from pyproject.toml; needs uv
	@echo 'setuptools>=77' | uv pip compile pyproject.toml - --extra dev --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		--upgrade --quiet --output-file requirements.lock >/dev/null
	@! grep -inE '://|^torch==' requirements.lock

clean: ## remove .venv, .venv-vllm, .venv-trl and caches; traces in .weavegen stay
	@rm -rf .venv .venv-vllm .venv-trl .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist ./*.egg-info tests/web/.axe
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
