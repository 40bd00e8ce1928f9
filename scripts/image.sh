#!/usr/bin/env bash
# The image of deploy/Dockerfile, and what its tests need, with podman. Containers need root here.
#   image.sh install                         podman with its parts, and podman-compose in .venv-compose (30 MB)
#   image.sh build                           weavegen:latest, weavegen:next, and stand-ins for other images of compose.yaml
#   image.sh compose ARGUMENTS...            podman-compose with deploy/compose.yaml and tests/image/compose.yaml
# An image that is neither here nor in a registry is replaced by a stand-in of the same name: a minimal Debian for
# Python's, Debian's Redis, and weavegen's own PostgreSQL. `podman rmi NAME` removes one, so that the next run asks the
# registry again. COMPOSE_VENV=folder chooses the place of podman-compose; for the interpreter see test_venv.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
name=image venv=${COMPOSE_VENV:-.venv-compose} size="30 MB"
packages=(podman-compose==1.6.0)
unwanted=()
. scripts/test_venv.sh
. scripts/containers.sh

# Whether the image is here or can be fetched.
available() {
    podman image exists "$1" || timeout 600 podman pull --quiet "$1" >/dev/null 2>&1
}

# build NAME OPTIONS...: from images that are here. A RUN step in a chroot has this machine's network, and with this
# machine's certificates pip and apt trust the same servers.
build() {
    local log
    log=$(mktemp)
    if ! podman build --isolation chroot --pull=never --layers "${certificates[@]}" --tag "$@" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        fail "podman could not build $1"
    fi
    rm -f "$log"
}

case ${1:-} in
install)
    # netavark and aardvark-dns make the containers' network, and are not in the PATH.
    PATH=$PATH:/usr/lib/podman bash scripts/setup.sh podman runc mmdebstrap iptables netavark aardvark-dns
    install
    ;;
build)
    base=$(sed -n 's/^FROM \(\S*\) AS build$/\1/p' deploy/Dockerfile)
    if ! available "$base"; then
        echo "image: no registry has $base: a minimal Debian 12 stands in for it"
        import_debian "$base" bookworm python3,python3-venv,python-is-python3,ca-certificates
    fi
    echo "image: building weavegen:latest; the first time takes some minutes and 1.2 GB"
    build weavegen:latest --file deploy/Dockerfile .
    build weavegen:next --file tests/image/Dockerfile --target next tests/image
    for service in postgres redis; do
        wanted=$(sed -n "s/^    image: \($service:.*\)/\1/p" deploy/compose.yaml)
        if ! available "$wanted"; then
            echo "image: no registry has $wanted: a stand-in takes its place (tests/image/Dockerfile)"
            build "$wanted" --file tests/image/Dockerfile --target "$service" tests/image
        fi
    done
    ;;
compose)
    shift
    program=$PWD/$venv/bin/podman-compose
    # podman looks for deploy/seccomp.json from the current folder, Docker from the folder of the first file.
    cd deploy
    exec "$program" --file compose.yaml --file ../tests/image/compose.yaml "$@"
    ;;
*)
    usage
    ;;
esac
