# shellcheck shell=bash
# What image.sh and debian.sh share. They source this file in the repository's root.
export CONTAINERS_CONF=$PWD/tests/image/containers.conf

# Options that let clients of package registries in a container trust the certificates that this machine trusts.
certificates=()
for folder in /etc/ssl/certs /usr/local/share/ca-certificates; do
    [ ! -d "$folder" ] || certificates+=(--volume "$folder:$folder:ro")
done

# import_debian NAME SUITE PACKAGES: make the image NAME, a minimal Debian with these packages.
import_debian() {
    local root
    root=$(mktemp -d)
    mmdebstrap --quiet --variant=minbase --include="$3" "$2" "$root/root.tar" >&2 || {
        echo "mmdebstrap could not make a Debian $2" >&2
        exit 1
    }
    podman import --quiet --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        "$root/root.tar" "$1" >/dev/null
    rm -rf "$root"
}
