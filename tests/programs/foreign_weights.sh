#!/bin/sh
# foreign_weights.sh BIN_DIR: weights saved by other programs. --strip-prefix removes a prefix of tensors' names, in all
# three programs. (foreign_weights_pt.sh: weights saved by torch.)
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
model='--model toy --steps 3 --no-eval'
python=${PYTHON:-python3}

run 'weights' "$bin/train_single" $model --save weights
run 'what they lead to' "$bin/train_single" $model --load-init weights --save want

# The same file with longer names: only the header's length and the names change.
command -v "$python" >/dev/null || { echo "foreign_weights: there is no python3" && exit 77; }
cat >rename.py <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + size])
header.pop("__metadata__", None)
named = {(sys.argv[3] if not i or len(sys.argv) < 5 else "") + n: t for i, (n, t) in enumerate(header.items())}
if len(sys.argv) == 5: # one name twice: with and without the prefix
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

# A GPT-2 saved by Hugging Face's transformers, with and without the prefix. (test_gpt2_files has its logits.)
"$python" -c 'print("abcdefghijklm" * 99)' | tr -d '\n' >letters.txt
gpt2="--model gpt --layers 2 --heads 2 --embedding 8 --context 10 --data letters.txt --steps 1 --no-eval"
run 'GPT2LMHeadModel' "$bin/train_single" $gpt2 --load-init "$root/tests/parity/gpt2_lm.safetensors" --save-init lm
run 'GPT2Model' "$bin/train_single" $gpt2 --load-init "$root/tests/parity/gpt2_bare.safetensors" --save-init bare
run 'equal weights' "$bin/compare_tensors" lm bare --bitwise
run 'GPT2Model, wrapped' "$python" rename.py "$root/tests/parity/gpt2_bare.safetensors" long wrapped_twice.and_once_more.
run 'a long prefix' "$bin/train_single" $gpt2 --load-init long --strip-prefix wrapped_twice.and_once_more. --save-init longer
run 'equal weights' "$bin/compare_tensors" lm longer --bitwise
refuse 2 "no name begins with the prefix 'wrapped.'" "$bin/train_single" $gpt2 --load-init long --strip-prefix wrapped.
run 'saved once more' "$bin/train_single" $gpt2 --load-init lm --save-init again
run 'equal weights, saved once more' "$bin/compare_tensors" lm again --bitwise
refuse 2 'holds another model: transformer.wpe.weight is F32 ' "$bin/train_single" $gpt2 --context 9 \
    --load-init "$root/tests/parity/gpt2_bare.safetensors"

tally foreign_weights
