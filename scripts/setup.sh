#!/usr/bin/env bash
# Creates .venv and installs what weavegen needs. It asks no questions; a second run takes no time.
# Arguments are further commands to install, each from the package of the same name, or as COMMAND=PACKAGE.
# PYTHON=/path/to/python3.12 chooses the interpreter, VENV=folder the place.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
[ "$(id -u)" != 0 ] || umask 022 # PostgreSQL and boxes have other users then, who must be able to read what is installed

fail() {
    echo "setup: $*" >&2
    exit 1
}

# Install missing packages as root on Debian or Ubuntu; otherwise fail with the command to run.
apt_install() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        fail "$* missing: install with \`sudo apt-get install $*\` (or with your system's package manager), then try again"
    fi
    echo "setup: installing $*"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get install -y -q --no-install-recommends "$@" ||
        { apt-get update -q && apt-get install -y -q --no-install-recommends "$@"; }; } </dev/null >"$log" 2>&1 ||
        fail "apt-get could not install $*: $(tail -n 1 "$log")"
}

usable() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        usable "$PYTHON" || fail "PYTHON=$PYTHON is not Python 3.11 or newer"
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && usable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer is needed, found $(python3 --version 2>/dev/null || echo none): install one, then try again"
}

fingerprint() {
    cat requirements.lock pyproject.toml scripts/setup.sh weavegen/sandbox/packages.lock | sha256sum
}

# Two at once would break each other's work. NFS locks only files that are open for writing.
if [ -w requirements.lock ]; then exec 9<>requirements.lock; else exec 9<requirements.lock; fi
! command -v flock >/dev/null || flock 9
# Also what was cloned with another umask, of the folders that boxes mount.
[ "$(id -u)" != 0 ] || find weavegen/box bootstraps ! -type l ! -perm -o=r -exec chmod a+rX {} +
log=$(mktemp)
trap 'rm -f "$log"' EXIT

missing=()
command -v tmux >/dev/null || missing+=(tmux)
command -v nano >/dev/null || missing+=(nano)
for command in "$@"; do
    PATH=$PATH:/usr/games command -v "${command%%=*}" >/dev/null || missing+=("${command#*=}")
done
[ "${WEAVEGEN_SANDBOX:-}" = none ] || command -v bwrap >/dev/null || missing+=(bubblewrap)
[ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"

if [ "$(cat "$venv/.stamp" "$venv/.place" 2>/dev/null)" = "$(fingerprint; echo "$PWD")" ] && "$venv/bin/python" -c '' 2>/dev/null; then
    # It is kept, because PYTHON may be meant for another environment (test_venv.sh).
    print_python='import sys; print(sys.base_prefix, sys.version)'
    [ -z "${PYTHON:-}" ] || [ "$("$PYTHON" -c "$print_python" 2>&1)" = "$("$venv/bin/python" -c "$print_python")" ] ||
        echo "setup: $venv keeps $("$venv/bin/python" --version): remove it to use PYTHON=$PYTHON" >&2
    exit 0
fi

# An environment contains its own path, so one that was moved is created again.
if [ "$(cat "$venv/.place" 2>/dev/null)" != "$PWD" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    command -v python3 >/dev/null || apt_install python3 python3-venv
    python=$(find_python)
    # Debian has the module that puts pip into a new environment in a separate package.
    "$python" -c 'import ensurepip' 2>/dev/null ||
        apt_install "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    # `venv --clear` would empty the folder that the link leads to, such as the environment of another checkout.
    [ ! -L "$venv" ] || fail "$venv is a link to $(readlink "$venv"): remove the link, or set VENV=FOLDER"
    echo "setup: making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
    echo "$PWD" >"$venv/.place"
fi
echo "setup: installing requirements.lock"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input -q)
"${pip[@]}" install --require-hashes -r requirements.lock
# setuptools warns about installations of this kind.
PYTHONWARNINGS=ignore "${pip[@]}" install --no-deps --no-build-isolation --no-index -e .
echo "setup: installing the packages of the boxes"
"$venv/bin/python" -m weavegen.sandbox.packages
fingerprint >"$venv/.stamp"
