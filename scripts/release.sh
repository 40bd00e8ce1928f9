#!/usr/bin/env bash
# Makes a release of the committed tree: dist/ gets the source distribution, the wheel and their checksums. Both are
# checked by twine; the wheel that is tried is the one built from the source distribution. It is installed into an empty
# environment, where `weavegen demo` runs in an empty folder. Nothing is uploaded.
# PYTHON=/path/to/python3.12 chooses the interpreter, DIST=folder the place of the result.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=${DIST:-dist}
tools=(build==1.6.1 twine==7.0.0)

fail() {
    echo "release: $*" >&2
    exit 2
}

[ -z "$(git status --porcelain)" ] || fail "uncommitted changes: commit or stash them, because a release is made of a commit"
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' weavegen/version.py)
! git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null ||
    fail "the tag v$version exists: raise the version in weavegen/version.py"
grep -q "^## $version\b" CHANGELOG.md || fail "CHANGELOG.md has no heading \"## $version\": add one"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
log=$folder/log
quietly() { # run a command; show its last lines if it fails
    "$@" >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        echo "release: failed: $*" >&2
        exit 1
    }
}
mkdir "$folder/source" "$folder/empty"
git archive HEAD | tar -x -C "$folder/source"

echo "release: building weavegen $version of commit $(git rev-parse --short HEAD)"
quietly "${PYTHON:-python3}" -m venv "$folder/tools"
quietly "$folder/tools/bin/pip" --disable-pip-version-check --no-input install "${tools[@]}"
quietly "$folder/tools/bin/python" -m build --outdir "$folder/dist" "$folder/source"
quietly "$folder/tools/bin/twine" check --strict "$folder"/dist/*

echo "release: installing the wheel into an empty environment"
began=$SECONDS
quietly "${PYTHON:-python3}" -m venv "$folder/empty/.venv"
quietly "$folder/empty/.venv/bin/pip" --disable-pip-version-check --no-input install "$folder"/dist/*.whl
echo "release: installed in $((SECONDS - began)) s; weavegen demo in an empty folder:"
try() { # run a command of the installed wheel in the empty folder, with nothing of this shell's environment
    (cd "$folder/empty/work" && env -i HOME="$HOME" PATH="$folder/empty/.venv/bin:$PATH" "$@")
}
mkdir "$folder/empty/work"
try weavegen demo || failed=1
quietly try weavegen down
[ -z "${failed:-}" ] || exit 1

mkdir -p "$dist"
cp "$folder"/dist/* "$dist"
(cd "$dist" && sha256sum "weavegen-$version"{.tar.gz,-*.whl} | tee "weavegen-$version.sha256")
echo "release: $dist/ is ready. To publish: git tag v$version, then twine upload $dist/weavegen-$version{.tar.gz,-py3-none-any.whl}"
