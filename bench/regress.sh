#!/usr/bin/env bash
# regress.sh: has the training step become slower? bench/report/regress.py says by two comparisons of compare.sh.
PYTHONPATH=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")") exec python3 -B -m report.regress "$@"
