#!/bin/sh
# foreign_weights_pt.sh BIN_DIR: common/tensor_files/pt_to_safetensors.py converts a .pt file written by torch into a
# file that the programs read. $PYTHON names a python3 with torch.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
model='--model toy --steps 3 --no-eval'
python=${PYTHON:-python3}
"$python" -c 'import torch' 2>/dev/null || { echo "skipped: $python has no torch" && exit 77; }
cat >save.py <<'END'
import torch
torch.manual_seed(0)
model = torch.nn.Sequential()
model.net1, model.net2 = torch.nn.Linear(10, 10), torch.nn.Linear(10, 5)
state = model.state_dict()
torch.save(state, "plain.pt")
torch.save({"epoch": 3, "state_dict": {"module." + n: t.double() for n, t in state.items()}}, "lightning.pt")
torch.save({"weights": state, "state_dict": 3}, "other.pt")
torch.save([1, 2], "list.pt")
torch.save({"a": torch.ones(3, dtype=torch.complex64)}, "complex.pt")
torch.save({"a": torch.ones(3).to_sparse()}, "sparse.pt")
open("empty.pt", "w").close()
open("junk.pt", "w").write("junk")
END
convert=$root/common/tensor_files/pt_to_safetensors.py
run 'torch.save' "$python" save.py
run 'a state_dict' "$python" "$convert" plain.pt plain
run 'inside a dictionary, float64, wrapped' "$python" "$convert" lightning.pt lightning
run 'under a key' "$python" "$convert" other.pt other --key weights
run 'plain' "$bin/train_single" $model --load-init plain --save from-plain
run 'lightning' "$bin/train_single" $model --load-init lightning --strip-prefix module. --save from-lightning
run 'other' "$bin/train_single" $model --load-init other --save from-other
same from-plain from-lightning
same from-plain from-other
refuse 1 'holds no dictionary of tensors' "$python" "$convert" list.pt none
refuse 1 'these are no tensors' "$python" "$convert" other.pt none
refuse 1 'complex.pt: a is torch.complex64' "$python" "$convert" complex.pt none
refuse 1 'sparse.pt: a is torch.float32 (torch.sparse_coo)' "$python" "$convert" sparse.pt none
refuse 1 'empty.pt: torch.load does not read it' "$python" "$convert" empty.pt none
refuse 1 'junk.pt: torch.load does not read it' "$python" "$convert" junk.pt none
checks=$((checks + 1))
[ ! -e none ] || fail 'a refused file was written'
tally foreign_weights_pt
