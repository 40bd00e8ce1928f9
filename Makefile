# Every target sets up what it needs (scripts/setup.sh) and asks nothing. VENV=folder chooses the place, as there.
BIN := $(or $(VENV),.venv)/bin
# The longest tier first. Two files run at a time, because tests wait a lot.
TIERS := tests/integration tests/weave tests/nano tests/pretraining tests/unit
# Tests that run programs which a machine may lack.
TOOLS := tests/tools tests/acceptance/test_practice.py tests/unit/test_tools.py

# If it is set, each of hundreds of processes compiles all of weavegen again: a third of a command's start-up time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-acceptance test-corpus test-agents test-security test-docs test-harbor test-tools test-web pictures test-vllm test-real test-real-part test-trl test-tuning test-image test-debian13 release test-badday weights check house chaos loop loop-all bench bench-corpus bench-agents settings lock clean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1: \2/p' Makefile

setup: ## install the virtual environment .venv, bubblewrap, tmux and nano
	@bash scripts/setup.sh

demo: setup ## play eight games of tic-tac-toe with a small language model, all on this machine
	@$(BIN)/weavegen demo

test: setup ## run unit and integration tests, with real services and the sandbox; under five minutes
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(TIERS)

test-acceptance: setup ## test whole installations: workers write traces, crash, resume, and upgrade; ten minutes
	@$(BIN)/python -m pytest -n 3 --dist loadfile tests/acceptance tests/upgrade

test-corpus: setup ## test exports, releases, rescoring, forks, views, reports, metrics
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/corpus

test-agents: setup ## test agents that converse, requests, FunSearch, shared pools
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/agents

test-security: setup ## test the promises of SECURITY.md and docs/audit.md: attacks, fuzzing, damage that the audit finds
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/security tests/audit tests/fuzz

test-harbor: ## test Harbor tasks: images by buildah, boxes with them, the verifier, forged rewards, exports that Harbor reads; needs root; eight minutes
	@bash scripts/setup.sh buildah podman mmdebstrap newuidmap=uidmap
	@bash scripts/harbor.sh install
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/harbor

test-docs: setup ## test every command, query and link in the documents
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/docs

test-tools: ## test agents' tools and tasks with the real nano, Emacs, NetHack and Chromium; skips nothing; two minutes
	@bash scripts/setup.sh nano emacs=emacs-nox nethack=nethack-console chromium
	@WEAVEGEN_NO_SKIPS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(TOOLS)

test-web: ## test the viewer and Flower in the system's Chromium; fetches axe-core from npm
	@bash scripts/setup.sh chromium npm
	@$(BIN)/python -m pytest -s -n 2 --dist loadfile tests/web

pictures: ## make the pictures in docs/images, from temporary installations; three minutes
	@bash scripts/setup.sh chromium
	@$(BIN)/python -m tests.web.pictures
	@$(BIN)/python -m tests.acceptance.terminal_pictures docs/images
	@WEAVEGEN_PICTURES=1 $(BIN)/python -m pytest tests/web/test_flower.py

test-vllm: setup ## test the model client against a real vLLM on the CPU; installs 3.5 GB
	@bash scripts/vllm.sh install
	@$(BIN)/python -m pytest tests/vllm

test-real: setup ## run every agent with SmolLM2-135M-Instruct on a real vLLM, on the CPU; 24 minutes
	@bash scripts/vllm.sh install
	@bash scripts/vllm.sh smollm .venv-vllm/smollm2
	@$(BIN)/python -m pytest -s tests/real

test-real-part: setup ## the same for react, research, and a weave trace that nano judges; four minutes
	@bash scripts/vllm.sh install
	@bash scripts/vllm.sh smollm .venv-vllm/smollm2
	@$(BIN)/python -m pytest -s tests/real -k "react or research or adapters or judges or dies"

test-trl: setup ## test exports with TRL's trainers on the CPU; installs 1.7 GB
	@bash scripts/trl.sh install
	@$(BIN)/python -m pytest tests/trl

test-tuning: setup ## test tuning, weavegen improve and its resumption after kills, and a model from scratch, on the CPU; ten minutes
	@bash scripts/trl.sh install
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/tuning

# Not in .ci/run, because it needs root and takes long.
test-image: setup ## build the image; run doctor, demo, all of compose.yaml and a lost host in containers; 20 minutes
	@bash scripts/image.sh install
	@bash scripts/image.sh build
	@$(BIN)/python -m pytest tests/image

test-debian13: ## run README's two commands as root and as an ordinary user, and the wheel, in containers with Debian 13; 25 minutes
	@bash scripts/debian.sh install
	@for part in wheel root user; do bash scripts/debian.sh trixie $$part || exit 1; done

release: ## build and check dist/, install it into an empty environment, run the demo with it; uploads nothing
	@bash scripts/release.sh

weights: setup ## train a small model from scratch on traces and drills of the simulation; some hours
	@bash scripts/trl.sh install
	@bash pretraining/make_weights.sh

loop: setup ## train a weak model on its own traces in five rounds, and a control; writes the table in README.md; can be resumed
	@bash scripts/trl.sh install
	@$(BIN)/python -m bench loop

loop-all: setup ## the same for two tasks with three seeds each; many hours; can be resumed
	@bash scripts/trl.sh install
	@$(BIN)/python -m bench loop_all

# Without network the look-up of vulnerabilities reports that nothing could be looked up, and does not fail.
check: setup ## check lint, format, types, imports between packages, known vulnerabilities in requirements.lock
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tests.security.audit

house: setup ## print size and structure of the code, with their limits
	@$(BIN)/python scripts/house.py

test-badday: setup ## break an installation in 39 ways; print which command shows the failure, and what is lost; 20 minutes
	@$(BIN)/python -m tests.badday

chaos: setup ## inject faults for ten minutes while traces are written, three times, once with trials; run an audit after each
	@for seed in 1 2; do $(BIN)/python -m tests.chaos --seed $$seed || exit 1; done
	@$(BIN)/python -m tests.chaos --seed 3 --search execute

bench: setup ## run all benchmarks: linting, engine, model pool, agents, exports, SQL, search
	@$(BIN)/python -m bench

bench-corpus: setup ## measure only SQL, search and exports, on up to a million blocks; half an hour, 10 GB
	@$(BIN)/python -m bench corpus_sql retrieval exports

bench-agents: setup ## compare the weave agent with ReAct on the same tasks, model and number of tokens
	@$(BIN)/python -m bench agents

settings: setup ## regenerate docs/settings.md from weavegen/kernel/settings.py
	@$(BIN)/python scripts/settings_reference.py

lock: ## regenerate requirements.lock and packages.lock; needs uv
	@echo 'setuptools>=77' | uv pip compile pyproject.toml - --extra dev --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		--upgrade --quiet --output-file requirements.lock >/dev/null
	@uv pip compile weavegen/sandbox/packages.in --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		--upgrade --quiet --output-file weavegen/sandbox/packages.lock >/dev/null
	@! grep -inE '://|^torch==' requirements.lock weavegen/sandbox/packages.lock

clean: ## remove .venv, .venv-vllm, .venv-trl, .venv-harbor-peer, .venv-compose, .venv-harbor, .loop and caches; traces in .weavegen stay
	@rm -rf .loop .venv .venv-vllm .venv-trl .venv-harbor-peer .venv-compose .venv-harbor .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist ./*.egg-info tests/web/.axe
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
