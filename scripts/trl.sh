#!/usr/bin/env bash
# TRL on the CPU, for tests: its trainers read the exports of `weavegen export`.
#   trl.sh install                           the virtual environment, about 1.5 GB; a second run takes no time
# TRL_VENV=folder chooses the place; for the interpreter and PyTorch see test_venv.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
name=trl venv=${TRL_VENV:-.venv-trl} size="1.5 GB"
packages=(trl==1.16.0 torch==2.13.0 peft==0.21.2 lark msgspec pytest)
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
