#!/usr/bin/env bash
# A small model from nothing: traces of three tasks, written by the SIMULATED model's scripts,
# then a tokenizer and a Llama trained on them. Two CPU cores take an hour and a half.
#   nano_weights.sh [FOLDER]                 where it goes; `weights` by default
# TRACES=0.1 makes a tenth of the traces.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-weights} share=${TRACES:-1}
home=$(mktemp -d)
export WEAVEGEN_HOME=$home/home WEAVEGEN_MODEL=sim WEAVEGEN_FLOWER=0 WEAVEGEN_VIEWER=0
weavegen=.venv/bin/weavegen
trap '$weavegen down >/dev/null; rm -rf "$home"' EXIT
$weavegen up >/dev/null

# One candidate a block: mistakes are kept, and what came of them. The second way tries again and looks things up.
as_it_comes=(--set 'rounds=[1]' --set backtrack_below=-100)
twice=(--set 'rounds=[1,1]')
enqueue() { # traces, bootstrap, options
    local n
    n=$(python3 -c "print(max(1, round($1 * $share)))")
    $weavegen enqueue "bootstraps/$2.py" -n "$n" --ticks 8 --seed "$((++seed))" "${@:3}"
}
seed=0
enqueue 150 sums "${twice[@]}"
enqueue 150 sums "${as_it_comes[@]}"
enqueue 100 nano_practice -p faults=4 "${twice[@]}"
enqueue 110 nano_practice -p faults=4 "${as_it_comes[@]}"
enqueue 100 tictactoe "${twice[@]}"
enqueue 130 tictactoe "${as_it_comes[@]}"
enqueue 130 tictactoe -p first=false "${as_it_comes[@]}"
enqueue 120 tictactoe -p opponent=random "${as_it_comes[@]}"
enqueue 100 tictactoe -p opponent=minimax "${as_it_comes[@]}"
for job in $(seq "$seed"); do $weavegen watch "$job" >/dev/null || true; done
$weavegen export --format text --out "$home/text" --where "trace_status = 'ended'"
$weavegen down >/dev/null
.venv-trl/bin/python -m weavegen.training.pretrain "$home/text" "$folder"
