#!/usr/bin/env bash
# regress.sh: compares two results of compare.sh and reports training steps that became slower
# (bench/report/regress.py).
PYTHONPATH=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")") exec python3 -B -m report.regress "$@"
