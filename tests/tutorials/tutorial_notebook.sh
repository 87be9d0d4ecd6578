#!/usr/bin/env bash
# tutorial_notebook.sh BIN: tutorials/colab.ipynb runs on a machine without a GPU, with this build's programs: every
# cell succeeds, the comparison finds equal bits, and figures are displayed.
set -uo pipefail
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v gnuplot >/dev/null || { echo "skipped: no gnuplot" && exit 77; }

# The kernel's working folder must not be the tree.
cd "$work" || exit 1
export DDPC_TREE=$tree DDPC_BIN=$1 DDPC_OUT="$work/a report" CUDA_VISIBLE_DEVICES=''
export DDPC_COMPARE="--quick --model mlp --repeats 1 --patience 0"
status=0
"${PYTHON:-python3}" "$tree/tests/tutorials/notebook.py" "$tree/tutorials/colab.ipynb" 600 >out 2>err || status=$?
if [[ $status == 77 ]]; then
    cat out
    exit 77
fi
for words in '^0 GPUs$' '^no GPU: nothing to check$' '^Equivalence: held in all '; do
    grep -q "$words" out || { echo "FAILED: no line $words" && status=1; }
done
[[ $status == 0 ]] || cat out err
exit "$status"
