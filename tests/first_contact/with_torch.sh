#!/usr/bin/env bash
# with_torch.sh SCRIPT [ARGUMENT...]: runs a Python script with the first Python of three that has PyTorch: $PYTHON's, that of
# bench/peers/compare.sh --install-peers, and python3. 77 if none has it.
set -u
for python in "${PYTHON:-}" "${XDG_CACHE_HOME:-$HOME/.cache}/ddpc/peers/bin/python" python3; do
    [[ -z $python ]] || ! "$python" -c 'import torch' 2>/dev/null || exec "$python" "$@"
    [[ -z ${PYTHON:-} ]] || break # the reader's choice
done
echo "skipped: no Python here has torch (\$PYTHON)"
exit 77
