#!/usr/bin/env bash
# Makes a small model from scratch: the SIMULATED model writes traces of three tasks, then a tokenizer and a Llama
# are trained on them. Takes an hour and a half on two CPU cores.
#   make_weights.sh [FOLDER]                 the output folder; `weights` by default
# TRACES=0.1 makes a tenth of the traces. They are kept in FOLDER.traces and used again if they exist.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-weights} traces=${1:-weights}.traces share=${TRACES:-1}

write_traces() ( # a subshell; its exit trap stops the services
    home=$(mktemp -d) weavegen=.venv/bin/weavegen seed=0
    export WEAVEGEN_HOME=$home/home WEAVEGEN_MODEL=sim WEAVEGEN_FLOWER=0 WEAVEGEN_VIEWER=0
    trap '$weavegen down >/dev/null; rm -rf "$home"' EXIT
    $weavegen up >/dev/null

    enqueue() { # traces, bootstrap, options
        local n
        n=$(python3 -c "print(max(1, round($1 * $share)))")
        $weavegen enqueue "bootstraps/$2.py" -n "$n" --ticks 8 --seed "$((++seed))" "${@:3}"
    }
    # `as_it_comes` samples one candidate a block, so mistakes and their consequences are kept. `twice` has a second
    # round and retrieves.
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
