#!/bin/sh
# own_refused.sh BIN_DIR FILES: a wrong user's file is refused with a sentence and status 2 before training starts, and
# none of its code runs if it calls the built-in wrapper. An error of any of its functions ends all ranks with its
# sentence. The trainers export the public functions to such a file, and none of their wrappers'.
files=$2
. "$(dirname "$0")/../programs/checks.sh"
PATH=$bin:$PATH

# ---- files that are refused ------------------------------------------------------------------------
ddp_file() { # NAME OPEN TABLE: writes a file with this body of open and these last lines
    cat >"$1" <<END
#include <dlfcn.h>
#include "ddp/distributed_data_parallel.h"
#include "ddp/own/own_ddp.h"
__attribute__((constructor)) static void loaded(void) { puts("LOADED"); }
static int unused(void *self, Error *err) { (void)self; return error_set(err, STATUS_FAILED, "unused"); }
static int before(void *self, bool reduces, Error *err) { (void)reduces; return unused(self, err); }
static void end(void *self) { (void)self; }
void *reducer_create(void *, ...);
void no_such_function(void *);
static void *make(Module *model, ProcessGroup *group, ReduceOp op, size_t bytes, Error *err) {
    $2
    return error_null(err, STATUS_FAILED, "opened: %s, %zu bytes", op == PG_AVG ? "average" : "sum", bytes);
}
$3
END
}
own_ddp='const OwnDdp own_ddp = {OWN_DDP_VERSION, make, before, unused, unused, end};'
wrapper="train_ddp --steps 2 --wrapper"

refuse 2 'there.c: No such file or directory' $wrapper there.c
mkdir folder.c
refuse 2 'folder.c: is a folder, not a regular file' $wrapper folder.c
echo 'print("wrapper")' >mine.py
refuse 2 'mine.py: is neither C source (FILE.c) nor a shared object' $wrapper mine.py
ddp_file syntax.c 'int x = 3' "$own_ddp"
refuse 2 "syntax.c does not compile: syntax.c:" $wrapper syntax.c
for words in 'error: expected' ' -- the command: cc -std=gnu11 ' ' syntax.c -lm'; do
    checks=$((checks + 1))
    grep -qF -- "$words" err.txt || fail "no \"$words\" in $(cat err.txt)"
done
ddp_file undeclared.c 'not_declared(model);' "$own_ddp"
refuse 2 'implicit declaration of function' $wrapper undeclared.c
ddp_file good.c 'puts("no luck");' "$own_ddp"
CC=there-is-none refuse 2 'the compiler there-is-none cannot be run' $wrapper good.c
refuse 1 'error: opened: average, 26214400 bytes' $wrapper good.c # 25 MiB
# CC may be several words, and the file's folder may have a space in its name.
mkdir 'a folder'
cp good.c 'a folder/my file.c'
CC='env cc' refuse 1 'error: opened: sum, 524288 bytes' train_ddp --steps 2 --wrapper 'a folder/my file.c' --normalize global \
    --bucket-cap-mb 0.5

PATH=$(cd "$(dirname "$0")" && pwd):$PATH CC=quick_cc QUICK_CC_KEPT=$work
export PATH CC QUICK_CC_KEPT
ddp_file none.c ';' ' '
refuse 2 'none.c: defines none of own_dp, own_ddp, own_fsdp, own_all_reduce' $wrapper none.c
ddp_file static.c '(void)loaded;' 'static const OwnDdp own_ddp = {OWN_DDP_VERSION, make, before, unused, unused, end};
const void *const keep = &own_ddp;'
refuse 2 'static declaration of ' $wrapper static.c
ddp_file two.c ';' "$own_ddp const int own_dp = 1;"
refuse 2 'two.c: defines own_dp and own_ddp: a file replaces one thing' $wrapper two.c
ddp_file version.c ';' 'const OwnDdp own_ddp = {2, make, before, unused, unused, end};'
refuse 2 'version.c: own_ddp has version 2, this program runs version 1' $wrapper version.c
while read -r header struct object run; do
    printf '#include "%s"\nconst %s %s = {2};\n' "$header" "$struct" "$object" >"$object.c"
    refuse 2 "$object.c: $object has version 2, this program runs version 1" $run "$object.c"
done <<END
dp/own/own_dp.h OwnDp own_dp train_dp --steps 2 --wrapper
ddp/fsdp/own/own_fsdp.h OwnFsdp own_fsdp train_fsdp --steps 2 --wrapper
ddp/own/own_all_reduce.h OwnAllReduce own_all_reduce train_ddp --steps 2 --all-reduce
END
ddp_file null.c ';' 'const OwnDdp own_ddp = {OWN_DDP_VERSION, make, before, unused};'
refuse 2 'null.c: function 4 of own_ddp is NULL' $wrapper null.c
refuse 2 'defines own_dp: run it by train_dp --wrapper FILE' $wrapper "$files/dp_one_node.c"
refuse 2 'defines own_ddp: run it by train_ddp --wrapper FILE' train_dp --wrapper "$files/ddp_naive.c"
refuse 2 'defines own_all_reduce: run it by train_ddp --all-reduce FILE' train_dp --wrapper "$files/sum_ring.c"
refuse 2 'defines own_ddp: run it by train_ddp --wrapper FILE' train_ddp --all-reduce "$files/ddp_naive.c"

# Calls of the built-in wrapper: none of the file's code may run.
forwards() { # NAME WORDS BODY
    ddp_file "$1.c" "$3" "$own_ddp"
    refuse 2 "$1.c: calls $2" $wrapper "$1.c"
    checks=$((checks + 1))
    ! grep -q LOADED out.txt || fail "$1.c was loaded"
}
belongs='which belongs to the built-in wrapper'
forwards forwards "distributed_data_parallel, $belongs" \
    'DdpConfig c = {0}; return distributed_data_parallel(model, group, &c, err);'
forwards finishes "ddp_finish_backward, $belongs" 'return ddp_finish_backward(model, NULL, err) ? NULL : model;'
forwards reducer "reducer_create, $belongs" 'return reducer_create(model, group, err);'
forwards dlsym 'dlsym: the public functions are called by their names' 'return dlsym(NULL, "distributed_data_parallel");'
forwards dlopen 'dlopen: the public functions are called by their names' 'return dlopen("libddpc.so", RTLD_NOW);'
forwards unknown 'no_such_function, which is neither public nor in the C library' 'no_such_function(group);'
cc -shared -o libddpc.so.9 -Wl,-soname,libddpc.so.9 -x c /dev/null
cc -shared -fPIC -I"$bin/../include" -I"$bin/../include/ddpc" -o linked.so good.c -Wl,--no-as-needed ./libddpc.so.9
refuse 2 'linked.so: is linked with libddpc.so.9, which has the built-in wrapper' $wrapper linked.so

# A shared object that is cut off at any length is refused without a crash.
cc -shared -fPIC -I"$bin/../include" -I"$bin/../include/ddpc" -o whole.so good.c
refuse 1 'error: opened: average, 0 bytes' $wrapper whole.so --bucket-cap-mb 0
bytes=$(wc -c <whole.so)
for part in 0 4 63 64 200 1000 4096 $((bytes / 2)) $((bytes - 1)); do
    head -c "$part" whole.so >cut.so
    refuse 2 'cut.so: ' $wrapper cut.so
done

# A file of FSDP units may not call fully_shard's functions.
{ echo '#include "ddp/fsdp/fully_shard.h"' && sed 's/^    Fsdp \*fsdp = calloc.*/&\n    if (fully_shard(model, group, \&(FsdpConfig){0}, err) != 0) return NULL;/' "$files/fsdp_tensors.c"; } >shards.c
refuse 2 "shards.c: calls fully_shard, $belongs" train_fsdp --wrapper shards.c
refuse 2 'defines own_fsdp: run it by train_fsdp --wrapper FILE' $wrapper "$files/fsdp_tensors.c"
refuse 2 'defines own_ddp: run it by train_ddp --wrapper FILE' train_fsdp --wrapper good.c

# Options that have no effect with a user's file of units; with other files: own_calls.sh.
cp "$files/fsdp_tensors.c" .
for option in --no-overlap --no-reshard-after-forward --unshard-in-step; do
    refuse 2 "$option has no effect: " train_fsdp --wrapper fsdp_tensors.c $option
done

# ---- errors of its functions -----------------------------------------------------------------------
# fails NAME FILE OPTION 'sed script' 'sentence' [PROGRAM]: every rank ends with the sentence
fails() {
    name=$1
    sed "$4" "$files/$2" >"$name.c"
    checks=$((checks + 4))
    ! cmp -s "$name.c" "$files/$2" || fail "$name: nothing is planted"
    status=0
    ddprun --nproc-per-node 3 "${6:-train_ddp}" --steps 4 --global-batch 12 --timeout-s 60 "$3" "$name.c" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = 1 ] || fail "$name: status $status: $(cat err.txt)"
    # A line that several ranks print is shown once.
    ended=$(grep -c '^ddprun: rank . (.* exited with status [12] ' err.txt) || true
    [ "$ended" = 3 ] || fail "$name: $ended of 3 ranks have ended by themselves: $(cat err.txt)"
    grep -q "\[.\]: error: .*$5" err.txt || fail "$name: no \"$5\": $(cat err.txt)"
}
broken='if (pg_rank(ddp->group) == 1) return error_set(err, STATUS_FAILED, "rank 1 is out of luck");'
silent='if (pg_rank(ddp->group) == 1) return -1;'
fails open ddp_overlap.c --wrapper 's/^    ddp->state = /    if (pg_rank(group) == 1) return error_null(err, STATUS_FAILED, "no open");\n&/' 'no open'
fails open_silent ddp_overlap.c --wrapper 's/^    ddp->state = /    if (pg_rank(group) == 1) return NULL;\n&/' \
    'own_ddp.open failed and did not say why'
fails before ddp_overlap.c --wrapper "s/^    ddp->started = 0;/    $broken\n&/" 'rank 1 is out of luck'
fails before_silent ddp_overlap.c --wrapper "s/^    ddp->started = 0;/    $silent\n&/" \
    'own_ddp.before_forward failed and did not say why'
fails ready ddp_overlap.c --wrapper "s/^    gradient->ready = true;/    $broken\n&/" 'rank 1 is out of luck'
fails ready_silent ddp_overlap.c --wrapper "s/^    gradient->ready = true;/    $silent\n&/" \
    'on_ready of a parameter .* failed without a reason'
fails finish_silent ddp_overlap.c --wrapper "/^static int own_finish/,/^}/s/^    Ddp \*ddp = self;/&\n    $silent/" \
    'own_ddp.finish_backward failed and did not say why'
fails sync_silent ddp_overlap.c --wrapper "/^static int own_sync/,/^}/s/^    Ddp \*ddp = self;/&\n    $silent/; s/^    if (ddp->buffers_due.*//" \
    'own_ddp.sync_buffers failed and did not say why'
in_sum='if (pg_rank(group) == 1)'
fails sum sum_chain.c --all-reduce "s/^    const int rank = /    $in_sum return error_set(err, STATUS_FAILED, \"no sum\");\n&/" 'no sum'
fails sum_silent sum_chain.c --all-reduce "s/^    const int rank = /    $in_sum return -1;\n&/" \
    'own_all_reduce.sum failed and did not say why'
fails sum_forwards sum_chain.c --all-reduce \
    's/^    const int rank = /    return pg_run(group, pg_all_reduce(values, count, PG_F32, PG_SUM), err);\n&/' \
    'own_all_reduce.sum called all_reduce: it runs on the communication thread'
fails sum_starts sum_chain.c --all-reduce \
    's/^    const int rank = /    if (!pg_start(group, pg_send(values, count, PG_F32, (pg_rank(group) + 1) % 3), err)) return -1;\n&/' \
    'own_all_reduce.sum called pg_start of send'
fails counts sum_chain.c --all-reduce 's/pg_send(values, count, PG_F32, rank + 1)/pg_send(values, count + 1, PG_F32, rank + 1)/' \
    'ranks disagree: rank . runs send(F32, 5083[0-9], to rank .), rank . runs recv(F32, '

sharded() { # NAME FUNCTION 'sentence': rank 1 fails in FUNCTION of a file of FSDP units
    fails "$1" fsdp_tensors.c --wrapper "/^static .*own_$2(/,/^}/s/^    Fsdp \*fsdp = .*/&\n    $shards/" "$3" train_fsdp
}
shards='if (pg_rank(fsdp->group) == 1) return error_set(err, STATUS_FAILED, "rank 1 is out of luck");'
sharded units_before before_forward 'rank 1 is out of luck'
sharded units_finish finish_backward 'rank 1 is out of luck'
shards='if (pg_rank(fsdp->group) == 1) return -1;'
sharded units_silent after_forward 'own_fsdp.after_forward failed and did not say why'
sharded units_backward before_backward 'own_fsdp.before_backward failed and did not say why'
sharded units_after after_backward 'own_fsdp.after_backward failed and did not say why'
shards='return NULL;'
sharded units_open open 'own_fsdp.open failed and did not say why'

# The other functions' errors: own_calls.sh.
sed 's/^    Step \*step = node->saved;/&\n    tape_fail(tape, "reduce", "no sum"); return;/' "$files/dp_one_node.c" >dp_backward.c
refuse 1 'reduce on cpu:0: no sum' train_dp --steps 3 --wrapper dp_backward.c

# ---- symbols that the trainers export --------------------------------------------------------------
for program in train_dp train_ddp train_fsdp; do
    checks=$((checks + 2))
    nm -D --defined-only "$bin/$program" | awk '$2 == "T" { print $3 }' | sort >shown.txt
    grep -qx tape_record shown.txt && [ "$(wc -l <shown.txt)" -gt 150 ] || fail "$program exports $(wc -l <shown.txt) functions"
    ! grep -E '^(reducer|ddp|dp|data_parallel|distributed_data|gradient_slab|sync_state|buckets|replicate|shards|verify|fsdp|fully_shard|unit|own)' shown.txt >wrong.txt ||
        fail "$program exports $(cat wrong.txt)"
done
tally own_refused
