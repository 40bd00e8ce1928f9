# shellcheck shell=bash
# A virtual environment for tests that need packages beyond weavegen's own. trl.sh, vllm.sh and harbor.sh source this
# file in the repository's root, after they set
#   name, venv    the script's name, and the environment's folder
#   packages      the packages to install, with versions
#   unwanted      packages to remove again
#   size          the total size, for messages
#   oldest        the oldest minor version of Python 3 that they need; default 11
# PYTHON=/path/to/python3.12 chooses the interpreter. pip finds a CPU build of PyTorch by its own settings
# (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, pip.conf).

fail() {
    echo "$name: $*" >&2
    exit 1
}

usage() {
    sed -n 's/^#   //p' "scripts/$name.sh" >&2
    exit 2
}

find_python() {
    local candidate pyenv=${PYENV_ROOT:-$HOME/.pyenv}/versions
    for candidate in ${PYTHON:+"$PYTHON"} "${VENV:-.venv}/bin/python" python3 python3.12 python3.11 python3.13 python3.14 "$pyenv"/3.*/bin/python; do
        if "$candidate" -c "import sys; sys.exit(not (3, ${oldest:-11}) <= sys.version_info < (3, 15))" 2>/dev/null; then
            echo "$candidate"
            return
        fi
        [ "$candidate" != "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is not Python 3.${oldest:-11} to 3.14"
    done
    fail "Python from 3.${oldest:-11} to 3.14 is needed: install one, or name it with PYTHON=/path/to/python3"
}

# Creates the environment, unless it exists with these packages.
install() {
    local python log pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input -q)
    # A lock, because two concurrent installations would damage each other. NFS locks only files open for writing.
    if [ -w "scripts/$name.sh" ]; then exec 9<>"scripts/$name.sh"; else exec 9<"scripts/$name.sh"; fi
    ! command -v flock >/dev/null || flock 9
    if [ "$(cat "$venv/.stamp" 2>/dev/null)" = "${packages[*]}" ] && "$venv/bin/python" -c '' 2>/dev/null; then
        return
    fi
    python=$(find_python)
    log=$(mktemp)
    echo "$name: installing ${packages[*]} into $venv with $("$python" --version); this takes some minutes and $size"
    if ! {
        "$python" -m venv --clear "$venv" &&
            "${pip[@]}" install "${packages[@]}" &&
            { [ ${#unwanted[@]} = 0 ] || "${pip[@]}" uninstall -y "${unwanted[@]}"; }
    } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        fail "could not install ${packages[*]}. If PyTorch's CPU build is missing, name an index that has it in PIP_EXTRA_INDEX_URL"
    fi
    rm -f "$log"
    echo "${packages[*]}" >"$venv/.stamp"
}
