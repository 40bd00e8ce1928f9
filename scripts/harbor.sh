#!/usr/bin/env bash
# Harbor with weavegen beside it, for tests: its models read our exports, and it runs trials in our boxes.
#   harbor.sh install                        the virtual environment, about 1.2 GB; a second run takes no time
# HARBOR_VENV=folder chooses the place; for the interpreter, which must be Python 3.12 or later, see test_venv.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
name=harbor venv=${HARBOR_VENV:-.venv-harbor-peer} size="1.2 GB" oldest=12
packages=(harbor==0.26.0 pytest -e .)
unwanted=()
. scripts/test_venv.sh

case ${1:-} in
install)
    install
    ;;
*)
    usage
    ;;
esac
