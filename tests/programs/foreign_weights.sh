#!/bin/sh
# foreign_weights.sh BIN_DIR: weights that were saved elsewhere. --strip-prefix leaves out what stands before the names, in
# all three programs; where torch is, common/train/pt_to_safetensors.py turns a .pt into what is read here.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
model='--model toy --steps 3 --no-eval'
python=${PYTHON:-python3}

run 'weights' "$bin/train_single" $model --save weights
run 'what they lead to' "$bin/train_single" $model --load-init weights --save want

# The same file with longer names: the header's length and the names change, the tensors do not.
command -v "$python" >/dev/null || { echo "foreign_weights: there is no python3" && exit 77; }
cat >rename.py <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + size])
header.pop("__metadata__", None)
named = {(sys.argv[3] if not i or len(sys.argv) < 5 else "") + n: t for i, (n, t) in enumerate(header.items())}
if len(sys.argv) == 5:  # one of the names twice: with the prefix, and without
    first = next(iter(header))
    named = {sys.argv[3] + first: header[first], **header}
    data += data[8 + size:][:header[first]["data_offsets"][1] - header[first]["data_offsets"][0]]
    end = max(t["data_offsets"][1] for t in header.values())
    span = header[first]["data_offsets"]
    named[sys.argv[3] + first] = {**header[first], "data_offsets": [end, end + span[1] - span[0]]}
text = json.dumps(named).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
END
run 'a wrapped model' "$python" rename.py weights wrapped module.
run 'both names' "$python" rename.py weights both module. both
refuse 2 'a wrapped model was saved: --strip-prefix module.' "$bin/train_single" $model --load-init wrapped
refuse 2 "no name begins with the prefix 'model.'" "$bin/train_single" $model --load-init wrapped --strip-prefix model.
refuse 2 'without the prefix, ' "$bin/train_single" $model --load-init both --strip-prefix module.
refuse 2 '--strip-prefix has no effect' "$bin/train_single" $model --strip-prefix module.
run 'single' "$bin/train_single" $model --load-init wrapped --strip-prefix module. --save single
same want single
run 'dp' "$bin/train_dp" $model --load-init wrapped --strip-prefix module. --save dp
run 'dp, plain' "$bin/train_dp" $model --load-init weights --save dp-want
same dp-want dp
run 'ddp' "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" $model --load-init wrapped --strip-prefix module. --save ddp
run 'ddp, plain' "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" $model --load-init weights --save ddp-want
same ddp-want ddp
run 'evaluation' "$bin/train_single" --model toy --evaluate wrapped --strip-prefix module.

if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "foreign_weights: there is no torch: .pt was not tried"
    tally foreign_weights
    exit
fi
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
END
convert=$root/common/train/pt_to_safetensors.py
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
tally foreign_weights
