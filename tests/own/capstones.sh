#!/bin/sh
# capstones.sh BIN_DIR FILES NAME [quick]: the judge of the capstone NAME gives all points to each correct file. Each
# wrong version in NAME.wrong fails at the stage and with the sentence given there. quick: a part of the wrong versions.
files=$2 name=$3 quick=${4:-}
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/../programs/checks.sh"
TUTORIAL_WORK=$work/w TUTORIAL_BUILD=$bin/..
export TUTORIAL_WORK TUTORIAL_BUILD
capstone=$top/tutorials/capstone

judged() { # FILE: writes its score and its first failed stage to out.txt
    checks=$((checks + 1))
    "$capstone" grade "$name" "$1" >out.txt 2>&1 </dev/null && passed=1 || passed=0
}

# The starter file loads and fails at the first stage.
run 'start' "$capstone" start "$name"
"$capstone" grade "$name" >out.txt 2>&1 && fail "the starter has all points: $(cat out.txt)"
grep -q '^Score 0/' out.txt || fail "the starter: $(cat out.txt)"
run 'a hint' "$capstone" hint "$name"
grep -q ', hint 1 of ' out.txt || fail "no hint: $(cat out.txt)"

every=8 # quick judges one of so many wrong versions
case $name in
own-ddp) right='ddp_overlap.c ddp_in_place.c ddp_frontier.c' solution=ddp_overlap.c every=9 ;;
own-fsdp) right='fsdp_tensors.c fsdp_flat.c fsdp_direct.c' solution=fsdp_tensors.c every=20 ;;
own-dp) right='dp_one_node.c dp_packed.c dp_kept.c' solution=dp_one_node.c ;;
own-all-reduce) right='sum_ring.c sum_direct.c sum_halving.c' solution=sum_ring.c ;;
esac
if [ -n "$quick" ]; then right=$solution; fi
for file in $right; do
    judged "$files/$file"
    [ "$passed" = 1 ] || fail "$file: $(cat out.txt)"
done

# apply FILE FIND WITH NTH: replaces by WITH the one line of FILE that is FIND without its indentation, or the NTH such
# line
apply() {
    FIND=$2 WITH=$3 NTH=$4 awk '
        { line = $0; sub(/^[ \t]+/, "", line) }
        line == ENVIRON["FIND"] && (++n == ENVIRON["NTH"] || ENVIRON["NTH"] == 0) { print ENVIRON["WITH"]; next }
        { print }
        END { exit ENVIRON["NTH"] == 0 ? n != 1 : n < ENVIRON["NTH"] }' "$1" >applied.c || fail "$wrong: \"$2\" is not one line of $solution"
    mv applied.c "$1"
}

judge_wrong() {
    [ -n "$wrong" ] || return 0
    count=$((count + 1))
    if [ -n "$quick" ] && [ $((count % every)) != 1 ]; then return 0; fi
    judged wrong.c
    [ "$passed" = 0 ] || fail "$wrong: has all points"
    missed=$(sed -n 's/^  MISS [^ ]*  //p' out.txt)
    case $missed in "$stage"*) ;; *) fail "$wrong: misses \"$missed\", not $stage: $(cat out.txt)" ;; esac
    sed -n '/^  MISS/,/^  SKIP\|^Score/p' out.txt | grep -qF -- "$says" || fail "$wrong: no \"$says\" in $(cat out.txt)"
}

wrong='' count=0
while IFS= read -r line; do
    case $line in
    'wrong: '*)
        judge_wrong
        wrong=${line#wrong: }
        cp "$files/$solution" wrong.c
        ;;
    'find: '* | 'also: '*) find=${line#*: } nth=0 ;;
    'nth: '*) nth=${line#nth: } ;;
    'with: '*) apply wrong.c "$find" "${line#with: }" "$nth" ;;
    'stage: '*) stage=${line#stage: } ;;
    'says: '*) says=${line#says: } ;;
    esac
done <"$files/$name.wrong"
judge_wrong
[ "$count" -ge 20 ] || fail "only $count wrong versions"
tally "capstone $name"
