#!/bin/sh
# own_calls.sh BIN_DIR FILES: which functions of a user's file are called, with which arguments and in which order; options
# that have no effect beside such a file; and, for one wrapper of each kind, the bits of the built-in one.
files=$2
. "$(dirname "$0")/../programs/checks.sh"
PATH=$bin:$PATH

compile() { cc -std=gnu11 -O0 -fPIC -shared -ffp-contract=off -I"$bin/../include" -I"$bin/../include/ddpc" -o "$2" "$1" -lm || fail "cc $1"; }

# ---- calls -----------------------------------------------------------------------------------------
# Tells each call on stdout. A function that FAIL names fails without a reason.
cat >told.c <<'END'
#include "ddp/own/own_ddp.h"
static int told(const char *name) {
    const char *wanted = getenv("FAIL");
    printf("told %s\n", name);
    return wanted && strcmp(wanted, name) == 0 ? -1 : 0;
}
static Module *opened;
static void *open(Module *model, ProcessGroup *group, ReduceOp op, size_t bytes, Error *err) {
    (void)group, (void)err;
    printf("told %s of %zu bytes\n", op == PG_SUM ? "sum" : "average", bytes);
    return told("open") == 0 ? opened = model : NULL;
}
static int before_forward(void *self, bool reduces, Error *err) {
    (void)err;
    printf("told reduces %d%s\n", reduces, self == opened ? "" : " of another");
    return told("before_forward");
}
static int finish_backward(void *self, Error *err) { (void)self, (void)err; return told("finish_backward"); }
static int sync_buffers(void *self, Error *err) { (void)self, (void)err; return told("sync_buffers"); }
static void end(void *self) { (void)told(self == opened ? "close" : "close of another"); }
const OwnDdp own_ddp = {OWN_DDP_VERSION, open, before_forward, finish_backward, sync_buffers, end};
END
sed -i '1i #include <stdio.h>\n#include <stdlib.h>\n#include <string.h>' told.c
compile told.c told.so
told="train_ddp --wrapper told.so --steps 2 --global-batch 8"

# calls 'EXPECTED LINES' COMMAND...: repeated lines count once
calls() {
    wanted=$1
    shift
    run "$*" "$@"
    printf '%s\n' "$wanted" >wanted.txt
    sed -n 's/^told //p' out.txt | uniq | diff wanted.txt - >diff.txt || fail "$*: $(cat diff.txt)"
}
step='reduces 1
before_forward
finish_backward'
calls "average of 26214400 bytes
open
$step
$step
sync_buffers
close" $told
accumulated="reduces 0
before_forward
$step"
calls "sum of 524288 bytes
open
$accumulated
$accumulated
close" $told --accumulate-steps 2 --no-eval --normalize global --bucket-cap-mb 0.5
calls "average of 0 bytes
open
$step
$step
close" $told --no-eval --bucket-cap-mb 0
for function in open before_forward finish_backward sync_buffers; do
    FAIL=$function refuse 1 "own_ddp.$function failed and did not say why" $told
done

cat >told_dp.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dp/own/own_dp.h"
static bool fails(const char *name) { return getenv("FAIL") && strcmp(getenv("FAIL"), name) == 0; }
static struct { Module *model; Device *other; Tensor y; } opened;
static void *open(Module *model, Device *const *devices, int count, Error *err) {
    (void)err;
    printf("told open on %d devices\n", count);
    opened.model = model;
    opened.other = devices[count - 1];
    return fails("open") ? NULL : &opened;
}
static Tensor *forward(void *self, Tape *tape, Tensor *x) {
    printf("told forward of %s rows\n", self != &opened ? "other" : x->shape[0] == 8 ? "8" : "many");
    if (fails("forward")) return NULL;
    if (fails("tape")) tape_fail(tape, "told", "no rows");
    Tensor *y = module_forward(opened.model, tape, x);
    if (!fails("device")) return y;
    opened.y = *y;
    opened.y.device = opened.other;
    return &opened.y;
}
static void end(void *self) { printf("told close%s\n", self == &opened ? "" : " of another"); }
const OwnDp own_dp = {OWN_DP_VERSION, open, forward, end};
END
compile told_dp.c told_dp.so
told_dp="train_dp --wrapper told_dp.so --devices 2 --steps 2 --global-batch 8"
calls 'open on 2 devices
forward of 8 rows
forward of many rows
close' $told_dp
FAIL=open refuse 1 'own_dp.open failed and did not say why' $told_dp
FAIL=forward refuse 1 'own_dp.forward failed and did not say why' $told_dp
FAIL=device refuse 1 'own_dp on cpu:0: forward returned a tensor on another device' $told_dp
FAIL=tape refuse 1 'told on cpu:0: no rows' $told_dp

# ---- options ---------------------------------------------------------------------------------------
while read -r option why; do
    # shellcheck disable=SC2046,SC2086 # several words
    refuse 2 "${option%%=*} has no effect: $why" $told $(echo "$option" | tr = ' ')
done <<END
--no-overlap --wrapper FILE decides that itself
--no-broadcast-buffers --wrapper FILE decides that itself
--all-reduce=none.so --wrapper FILE starts its own all-reduces
--cuda-graph a replayed step would not call --wrapper's functions
--comm-hook=fp16 it is a feature of the built-in wrapper
--static-graph it is a feature of the built-in wrapper
--find-unused-parameters it is a feature of the built-in wrapper
--zero-optimizer it is a feature of the built-in wrapper
--sync-batch-norm it is a feature of the built-in wrapper
END
refuse 2 "--cuda-graph has no effect: a replayed step would not call --wrapper's functions" $told_dp --cuda-graph
run 'help' train_ddp --help
for option in '--wrapper FILE  *train with a wrapper' '--all-reduce FILE  *sum gradients'; do
    checks=$((checks + 1))
    grep -q -e "^  $option" out.txt || fail "no \"$option\" in train_ddp --help"
done
refuse 2 'none.so: No such file' train_dp --wrapper none.so
refuse 2 'none.so: No such file' train_ddp --wrapper none.so
refuse 2 'none.so: No such file' train_ddp --all-reduce none.so
checks=$((checks + 1))
! ddprun --nproc-per-node 2 sh -c 'exec train_ddp --wrapper told.so --steps 2 --global-batch $((8 + 2 * RANK))' >out.txt 2>err.txt </dev/null ||
    fail 'ranks with different options train'
grep -q -- '--global-batch' err.txt || fail "the different option is not named: $(cat err.txt)"

# ---- two ranks -------------------------------------------------------------------------------------
ranks() { ddprun --nproc-per-node 2 train_ddp "$@"; }
# Rank 1 does not open, and rank 0 waits for it in a broadcast: both end with its sentence.
sed 's/^    Ddp \*ddp = malloc/    if (pg_rank(group) == 1) return error_null(err, STATUS_FAILED, "no open");\n&/' "$files/ddp_naive.c" >closed.c
compile closed.c closed.so
checks=$((checks + 1))
! ranks --steps 2 --wrapper closed.so >out.txt 2>err.txt </dev/null || fail 'a wrapper that does not open'
grep -q '^\[0\]: error: rank 1: no open$' err.txt || fail "rank 0 does not say why rank 1 has not opened: $(cat err.txt)"
for file in dp_one_node ddp_naive ddp_overlap sum_naive; do compile "$files/$file.c" $file.so; done
run 'profile' ranks --steps 2 --no-eval --profile --wrapper ddp_overlap.so
grep -q '^\[0\]: all-reduces  *[0-9.]*[1-9]' err.txt || fail "no time of all-reduces: $(cat err.txt)"

# Ranks whose texts have different letters
mkdir 0 1
yes 'a text of letters' | head -n 500 >0/text.txt
yes 'a text of more letters, with a comma' | head -n 500 >1/text.txt
checks=$((checks + 1))
! ddprun --nproc-per-node 2 sh -c 'cd $RANK; exec train_ddp --wrapper ../ddp_naive.so --steps 2 --no-eval --model gpt --data ./text.txt' \
    >out.txt 2>err.txt </dev/null || fail 'ranks with different data train'
grep -q 'does not see the same number of classes' err.txt || fail "different data: $(cat err.txt)"

# ---- bits ------------------------------------------------------------------------------------------
# pair OPTIONS COMMAND...: equal weights, with these options and without them
pair() {
    options=$1
    shift
    # shellcheck disable=SC2086 # several words
    run "$* $options" "$@" --steps 3 --seed 3 --save b $options
    run "$*" "$@" --steps 3 --seed 3 --save a
    same a b
}
pair '--wrapper dp_one_node.so' train_dp --devices 2 --global-batch 13 --trace trace.json
pair '--wrapper dp_one_node.so' train_dp --devices 2 --global-batch 12 --no-shuffle --no-eval
pair '--wrapper ddp_naive.so' ranks --global-batch 12
pair '--wrapper ddp_naive.so' ranks --global-batch 12 --sampler blocked --normalize global --no-shuffle --no-eval
pair '--all-reduce sum_naive.so' ranks --global-batch 12 --no-eval
tally own_calls
