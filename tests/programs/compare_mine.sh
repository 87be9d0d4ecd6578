#!/bin/sh
# compare_mine.sh BIN_DIR: bench/compare.sh --mine: a correct file of each kind has its rows, figures and bits beside
# the built-in strategies; a file with other bits, one that fails during a run, and one that is refused. The sentences:
# tests/report/test_mine.py.
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/checks.sh"
needs_report
built=$bin/..
bin=$("$top/tests/programs/steady.sh" "$bin" "$work/bin")
own=$top/tests/own
PATH=$own:$PATH CC=quick_cc QUICK_CC_KEPT=$work # $own may contain a space
export PATH CC QUICK_CC_KEPT

# compare STATUS FILE OPTION...: into out/. With --resume, the built-in strategies' runs of the previous call are kept,
# because their commands are unchanged; the runs with another FILE are made.
compare() {
    checks=$((checks + 1))
    wanted=$1 file=$2 status=0
    shift 2
    "$top/bench/compare.sh" --bin "$bin" --quick --repeats 1 --patience 0 --model toy --world 2 --out out --mine "$file" "$@" >out.txt 2>err.txt ||
        status=$?
    [ "$status" = "$wanted" ] || fail "$file: status $status, not $wanted: $(tail -n 5 out.txt err.txt)"
}
# compile FILE SO: compiles once instead of in each rank; the first comparison tests compiling from source.
compile() { quick_cc -std=gnu11 -fPIC -shared -ffp-contract=off -I"$built/include" -I"$built/include/ddpc" -o "$2" "$1" -lm; }
has() { grep -qF -- "$2" "$1" || fail "$1 has no \"$2\": $(tail -n 5 "$1")"; }
rows() { awk -F, '$1 == "mine"' "$1" | wc -l; }

# ---- a correct file of each kind ---------------------------------------------------------------------------
cp "$own/ddp_overlap.c" "my ddp.c"
compare 0 "my ddp.c"
has out.txt 'Yours: held in all 20 comparisons with train_ddp.'
has out.txt 'Equivalence: held in all'
checks=$((checks + 5))
for table in summary summary-link growth; do [ "$(rows out/$table.csv)" = 1 ] || fail "$table.csv has $(rows out/$table.csv) rows of mine"; done
[ "$(sed 1d out/buckets-mine.csv | wc -l)" = "$(sed 1d out/buckets.csv | wc -l)" ] || fail "buckets-mine.csv: $(cat out/buckets-mine.csv)"
[ "$(grep -c -- "--wrapper '$work/my ddp.c'" out/commands.txt)" -gt 9 ] || fail "commands.txt: $(grep -c wrapper out/commands.txt)"
has out/report.md '**Yours (my ddp.c) with toy on 2 devices: '
has out/report.md "Its numbers are train_ddp's in all 20 comparisons."
has out/report.md '| toy | yours | 2 |'
has out/report.md '| ddp:2 | yours:2 | same bits |'
has out/player.html '"mine":{"step":'
has out/difference-mine.svg 'Your step minus'
has out/throughput.svg '>yours<'
has out/timeline.svg '>yours 1 main<'
has out/phases.svg '>yours 2<'
has out/buckets.svg '>yours<'
checks=$((checks + 1)) status=0
"$top/tests/programs/report_page.sh" "$bin" "$work/out" >page.txt 2>&1 || status=$?
[ $status = 0 ] || [ $status = 77 ] || fail "the page: $(cat page.txt)"
[ $status = 0 ] || echo "there is no chromium: no look at the page"
compile "$own/dp_packed.c" dp.so
compare 0 dp.so --only-equivalence --resume
has out.txt 'Yours: held in all 15 comparisons with train_dp.'
has out/equivalence.csv ',dp:2,mine:2,'
compile "$own/fsdp_flat.c" fsdp.so
compare 0 fsdp.so --only-equivalence --resume
has out.txt 'Yours: held in all 15 comparisons with train_fsdp.'
has out/equivalence.csv ',fsdp:1,mine:1,'
checks=$((checks + 2)) # measured beside fsdp over the link, and without buckets
measured() { bash -c 'source "$1/bench/compare/link.sh"; mine=FILE mine_like=$3; "$2"' sh "$top" "$@" | paste -sd ' ' -; }
[ "$(measured link_strategies fsdp) | $(measured bucket_strategies fsdp)" = 'dp ddp fsdp mine | ddp' ] || fail "$(measured link_strategies fsdp)"
[ "$(measured link_strategies ddp) | $(measured bucket_strategies ddp)" = 'dp ddp mine | ddp mine' ] || fail "$(measured link_strategies ddp)"
compile "$own/sum_ring.c" sum.so
compare 0 sum.so --only-equivalence --resume
has out.txt 'Yours: held in all 20 comparisons with train_ddp.'
grep -q ',ddp:3 uneven,mine:3 uneven,.*,tolerance,' out/equivalence.csv || fail "a ring adds in another order: $(tail -n 1 out/equivalence.csv)"

# ---- other bits, a failure, a refusal ----------------------------------------------------------------------
# A wrong ring with the same name: values received from the left count twice, and with three ranks each rank aborts.
awk '{ print } /^#include/ && !done { done = 1; print "__attribute__((constructor)) static void three(void) { const char *n = getenv(\"WORLD_SIZE\"); if (n && *n == (char)51) abort(); }" }' \
    "$own/sum_ring.c" | sed 's/values\[i\] += received/values[i] += 2 * received/' >wrong.c
[ "$(diff wrong.c "$own/sum_ring.c" | grep -c '^<')" = 2 ] || fail "not both were planted"
compile wrong.c sum.so # its contents show that the ring's runs are outdated
compare 1 sum.so --only-equivalence --resume
has out.txt 'Equivalence: held in all'
has out.txt 'Yours: BROKEN in 11 of 16 comparisons with train_ddp.'
has out.txt 'Yours: these runs failed: equivalence:toy:3.'
has out/failed.csv 'equivalence,toy,3,"'
rm -rf out
echo 'int nothing;' >none.c
compare 2 none.c
checks=$((checks + 1))
has err.txt "error: --mine $work/none.c: defines none of own_dp, own_ddp, own_fsdp, own_all_reduce"
[ ! -e out/runs ] || fail "runs were made with a file that is refused"
tally compare_mine
