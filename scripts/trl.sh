#!/usr/bin/env bash
# TRL on the CPU, for tests: its trainers take what `weavegen export` wrote.
#   trl.sh install                           the virtual environment, about 1.5 GB; a second run takes no time
# PYTHON=/path/to/python3.12 chooses the interpreter, TRL_VENV=folder the place. pip finds a CPU build of PyTorch
# where its own settings say (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, pip.conf).
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${TRL_VENV:-.venv-trl}
packages=(trl==1.16.0 torch==2.13.0 pytest)

fail() {
    echo "trl: $*" >&2
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
    exec 9<scripts/trl.sh # two at once would spoil each other's work
    ! command -v flock >/dev/null || flock 9
    if [ "$(cat "$venv/.stamp" 2>/dev/null)" = "${packages[*]}" ] && "$venv/bin/python" -c '' 2>/dev/null; then
        return
    fi
    python=$(find_python)
    log=$(mktemp)
    echo "trl: installing ${packages[*]} into $venv with $("$python" --version); this takes some minutes and 1.5 GB"
    if ! {
        "$python" -m venv --clear "$venv" &&
            "$venv/bin/python" -m pip --disable-pip-version-check --no-input -q install "${packages[@]}"
    } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        fail "could not install ${packages[*]}. If it is PyTorch's CPU build: PIP_EXTRA_INDEX_URL names an index"
    fi
    rm -f "$log"
    echo "${packages[*]}" >"$venv/.stamp"
}

case ${1:-} in
install)
    install
    ;;
*)
    sed -n 's/^#   //p' "$0" >&2
    exit 2
    ;;
esac
