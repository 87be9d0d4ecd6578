#!/bin/sh
# compare_pytorch.sh: how many steps per second PyTorch and our programs do, with the same models and
# data, measured in turns. Builds what is needed, then runs bench/peers/pytorch.py, whose comment says
# what is measured and how.
#
#   bench/peers/compare_pytorch.sh [--device cpu|cuda] [--extra] [--quick] [...] >table.md
#   bench/peers/compare_pytorch.sh --bin DIR ...    uses the programs in DIR, builds nothing
#
# $PYTHON (python3) must have torch and safetensors; without them the status is 77, as without a GPU for
# --device cuda. On a GPU the status is 1 if a promised ratio is missed.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
bin=
if [ "${1:-}" = --bin ]; then
    [ $# -ge 2 ] || { echo "error: --bin needs a folder" >&2 && exit 2; }
    bin=$2
    shift 2
fi
command -v "$python" >/dev/null || { echo "skipped: there is no $python" && exit 77; }
if [ -z "$bin" ]; then
    . "$root/bench/setup.sh"
    setup_require 0 build
    setup_build "$root" "$root/build" train_single train_ddp dump_data
    bin=$root/build/bin
fi
unset OPENBLAS_CORETYPE # each side chooses for itself
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$root/bench/peers/pytorch.py" --bin "$bin" "$@"
