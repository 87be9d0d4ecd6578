#!/usr/bin/env bash
# with_torch.sh SCRIPT [ARGUMENT...]: runs a Python script with the first of three Pythons that has PyTorch: $PYTHON,
# that of bench/peers/compare.sh --install-peers, python3. 77 if none has it.
set -u
for python in "${PYTHON:-}" "${XDG_CACHE_HOME:-$HOME/.cache}/ddpc/peers/bin/python" python3; do
    [[ -z $python ]] || ! "$python" -c 'import torch' 2>/dev/null || exec "$python" "$@"
    [[ -z ${PYTHON:-} ]] || break # an explicit choice is the only candidate
done
echo "skipped: no Python here has torch (\$PYTHON)"
exit 77
