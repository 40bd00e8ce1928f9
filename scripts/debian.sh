#!/usr/bin/env bash
# README's two commands, and the wheel, on another Debian: each part in a new container, with podman, as root.
#   debian.sh install              podman with its parts
#   debian.sh SUITE root           make demo and make test in a fresh clone of the commit, as root
#   debian.sh SUITE user           the same as an ordinary user
#   debian.sh SUITE wheel          pip install of the wheel, then weavegen demo in an empty folder, as an ordinary user
# SUITE is a release of Debian: bookworm, trixie. The containers are privileged, because tests make control groups and
# mounts (docs/deploy.md lists what weavegen itself needs), and use this machine's network and certificates.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/containers.sh

usage() {
    sed -n 's/^#   //p' scripts/debian.sh >&2
    exit 2
}

# image SUITE PACKAGES: the name of an image with a minimal Debian and these packages, which is made if it is missing.
image() {
    local name
    name=weavegen-test-$1:$(cksum <<<"$2" | cut -d' ' -f1)
    podman image exists "$name" || import_debian "$name" "$1" "$2"
    echo "$name"
}

# run IMAGE USER SCRIPT: a script in a container that has the repository at /repository.
run() {
    local options=("${certificates[@]}") variable
    for variable in SSL_CERT_FILE PIP_CERT PIP_DEFAULT_TIMEOUT; do
        [ -z "${!variable:-}" ] || options+=(--env "$variable")
    done
    podman run --rm --privileged --network host "${options[@]}" --volume "$PWD:/repository:ro" --env TIMEFORMAT="%R s" \
        "$1" bash -euc "
        useradd --create-home tester
        git config --system --add safe.directory '*'
        cd ~$2
        export HOME=~$2
        exec setpriv --reuid=$2 --regid=$2 --init-groups bash -euo pipefail -c '$3'"
}

commands='git clone --quiet /repository weavegen; cd weavegen; time make demo; time make test'
wheel='git clone --quiet /repository source; python3 -m venv environment
    environment/bin/pip wheel --quiet --no-deps --wheel-dir wheels ./source; rm -rf source
    echo "pip install of the wheel:"; time environment/bin/pip install --quiet wheels/*.whl
    mkdir empty; cd empty; echo "weavegen demo:"; time ../environment/bin/weavegen demo'
# What must be installed for an ordinary user; as root, `make demo` installs the programs of boxes itself.
python=python3,python3-venv,ca-certificates,git boxes=bubblewrap,tmux,nano

case ${1:-},${2:-} in
install,) PATH=$PATH:/usr/lib/podman bash scripts/setup.sh podman runc mmdebstrap iptables netavark aardvark-dns ;;
?*,root) run "$(image "$1" "$python,make")" root "$commands" ;;
?*,user) run "$(image "$1" "$python,make,$boxes")" tester "$commands" ;;
?*,wheel) run "$(image "$1" "$python,$boxes")" tester "$wheel" ;;
*) usage ;;
esac
