#!/usr/bin/env bash
# Makes a small model from scratch: the SIMULATED model writes traces of five tasks, then a tokenizer and a Llama are
# trained on them and on drills. Takes some hours on two CPU cores, a quarter of an hour with a GPU.
#   make_weights.sh [FOLDER]                 the output folder; `weights` by default
# What a step has made is used again: the traces in FOLDER.traces, the token sequences in FOLDER.npz. The latter can be
# trained on elsewhere: pretrain.py is the only step that uses a GPU. TRACES=0.1 makes a tenth of the traces.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-weights} traces=${1:-weights}.traces bin=${VENV:-.venv}/bin

write_traces() ( # a subshell; its exit trap stops the services
    home=$(mktemp -d) weavegen=$bin/weavegen seed=0
    export WEAVEGEN_HOME=$home/home WEAVEGEN_MODEL=sim WEAVEGEN_FLOWER=0 WEAVEGEN_VIEWER=0
    trap '$weavegen down >/dev/null; rm -rf "$home"' EXIT
    $weavegen up >/dev/null

    enqueue() { # traces, ticks, bootstrap, options
        local n
        n=$(python3 -c "print(max(1, round($1 * ${TRACES:-1})))")
        $weavegen enqueue "bootstraps/$3.py" -n "$n" --ticks "$2" --seed "$((++seed))" "${@:4}"
    }
    # `as_it_comes` samples one candidate a block, so mistakes and their consequences are kept: they make the judge.
    # `twice` has a second round and retrieves.
    as_it_comes=(--set 'rounds=[1]' --set backtrack_below=-100)
    twice=(--set 'rounds=[1,1]')
    weak=(-p rounds=1 -p 'opponents=["random","eager"]')
    enqueue 30 8 tictactoe "${twice[@]}"
    enqueue 90 8 tictactoe "${as_it_comes[@]}"
    enqueue 70 8 tictactoe -p first=false "${as_it_comes[@]}"
    enqueue 65 8 tictactoe -p opponent=random "${as_it_comes[@]}"
    enqueue 50 8 tictactoe -p opponent=minimax "${as_it_comes[@]}"
    enqueue 20 8 sums "${twice[@]}"
    enqueue 100 8 sums "${as_it_comes[@]}"
    enqueue 15 12 nano_practice "${twice[@]}"
    enqueue 30 12 nano_practice "${as_it_comes[@]}"
    enqueue 40 12 nano_practice -p faults=6 "${as_it_comes[@]}"
    enqueue 15 12 haunted_mansion "${twice[@]}"
    enqueue 25 12 haunted_mansion "${as_it_comes[@]}"
    enqueue 15 14 tictactoe_tournament "${weak[@]}" "${twice[@]}"
    enqueue 25 14 tictactoe_tournament "${weak[@]}" "${as_it_comes[@]}"
    for job in $(seq "$seed"); do $weavegen watch "$job" >/dev/null || true; done
    $weavegen export --format text --out "$traces" --where "trace_status = 'ended'"
)

[ -d "$traces" ] || write_traces
[ -s "$folder.npz" ] || "$bin/python" -m pretraining.prepare "$traces" "$folder.npz"
.venv-trl/bin/python -m pretraining.pretrain "$folder.npz" "$folder"
