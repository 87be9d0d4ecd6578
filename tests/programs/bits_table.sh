#!/bin/sh
# bits_table.sh BIN_DIR: the table of options that affect the promise of equal bits (common/train/bits_table.c) is
# complete: it has exactly the options of train_dp, train_ddp and train_fsdp, and the table in bits.md has exactly its
# rows with a condition.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"

"$bin/print_bits_table" >table.txt
for program in train_dp train_ddp train_fsdp; do "$bin/$program" --help; done |
    sed -nE 's/^  --([a-z0-9-]+).*/\1/p' | grep -vx help | sort -u >options.txt
cut -f 1 table.txt | tr '|' '\n' | sort -u >named.txt
checks=$((checks + 1))
[ "$(wc -l <options.txt)" -ge 75 ] || fail "only these options: $(paste -sd ' ' options.txt)"
for option in $(comm -23 options.txt named.txt); do
    fail "--$option: no row of common/train/bits_table.c says what it does to the promise of equal bits"
done
for option in $(comm -13 options.txt named.txt); do
    fail "--$option: a row of common/train/bits_table.c names it, and no program has it"
done

# Rows in bits.md, section "The options": | `--a`, `--b` | when | reason | `remedy` |
awk -F '\t' '$2 != "-" {
    gsub(/\|/, "`, `--", $1)
    print "| `--" $1 "` | " $2 " | " $3 " | " ($4 == "-" ? "-" : "`" $4 "`") " |"
}' table.txt >wanted.txt
sed -n '/^## The options/,$p' "$root/common/train/bits.md" | { grep '^| `--' || true; } >found.txt
checks=$((checks + 1))
[ "$(wc -l <wanted.txt)" -ge 10 ] || fail "only these conditions: $(cat wanted.txt)"
diff wanted.txt found.txt >difference.txt || fail "bits.md's table is not common/train/bits_table.c's:
$(cat difference.txt)"

tally bits_table
