#!/usr/bin/env bash
# A small model from nothing: traces of three tasks, written by the SIMULATED model's scripts,
# then a tokenizer and a Llama trained on them. Two CPU cores take an hour and a half.
#   make_weights.sh [FOLDER]                 where it goes; `weights` by default
# TRACES=0.1 makes a tenth of the traces. They stay in FOLDER.traces, and are used again where they are there.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-weights} traces=${1:-weights}.traces share=${TRACES:-1}

write_traces() ( # a shell of its own, at whose end the services go down
    home=$(mktemp -d) weavegen=.venv/bin/weavegen seed=0
    export WEAVEGEN_HOME=$home/home WEAVEGEN_MODEL=sim WEAVEGEN_FLOWER=0 WEAVEGEN_VIEWER=0
    trap '$weavegen down >/dev/null; rm -rf "$home"' EXIT
    $weavegen up >/dev/null

    enqueue() { # traces, bootstrap, options
        local n
        n=$(python3 -c "print(max(1, round($1 * $share)))")
        $weavegen enqueue "bootstraps/$2.py" -n "$n" --ticks 8 --seed "$((++seed))" "${@:3}"
    }
    # One candidate a block: mistakes are kept, and what came of them. The second way tries again and looks things up.
    as_it_comes=(--set 'rounds=[1]' --set backtrack_below=-100)
    twice=(--set 'rounds=[1,1]')
    enqueue 150 tictactoe "${twice[@]}"
    enqueue 120 tictactoe "${as_it_comes[@]}"
    enqueue 140 tictactoe -p first=false "${as_it_comes[@]}"
    enqueue 130 tictactoe -p opponent=random "${as_it_comes[@]}"
    enqueue 100 tictactoe -p opponent=minimax "${as_it_comes[@]}"
    enqueue 75 sums "${twice[@]}"
    enqueue 100 sums "${as_it_comes[@]}"
    enqueue 30 nano_practice -p faults=4 "${twice[@]}"
    enqueue 50 nano_practice -p faults=4 "${as_it_comes[@]}"
    for job in $(seq "$seed"); do $weavegen watch "$job" >/dev/null || true; done
    $weavegen export --format text --out "$traces" --where "trace_status = 'ended'"
)

[ -d "$traces" ] || write_traces
.venv-trl/bin/python -m pretraining.pretrain "$traces" "$folder"
