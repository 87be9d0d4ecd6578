#!/usr/bin/env bash
# account.sh BIN_DIR full|quick: times of the kernels of GPT-2's step in 16 bits, beside the predictions of
# bench/gpu_account.py.
set -uo pipefail
command -v python3 >/dev/null || { echo "skipped: there is no python3" && exit 77; }
quick=()
[[ $2 == full ]] || quick=(--quick)
python3 "$(dirname "$0")/../../bench/gpu_account.py" "$1" --measure cuda ${quick[@]+"${quick[@]}"}
