#!/bin/sh
# quiet_repetitions.sh BIN_DIR: the repetitions that quiet.sh counts, and its computations: for given lines, and for a
# real series on this machine.
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/quiet.sh"

is() { # WHAT WANTED FOUND
    checks=$((checks + 1))
    [ "$2" = "$3" ] || fail "$1: '$3', not '$2'"
}

# The best probe is 100 and 10. After the first line: a slow product, slow memory, other load, stolen time, and a
# repetition just within the limits.
cat >made.reps <<'END'
100 10 1.000 0.000 3 210 7
79 10 1.000 0.000 3 211 8
100 7.9 1.000 0.000 3 212 8
100 10 0.890 0.000 3 213 8
100 10 1.000 0.021 3 214 8
80 8 0.900 0.020 3 250 9
END
is "what counts" "210 7,250 9" "$(undisturbed made | paste -sd , -)"
is "two of three" "" "$(medians made)"
echo "99 9.9 0.99 0.00 3 220 1" >>made.reps
is "three of three" "220 7" "$(medians made)"
echo "99 9.9 0.99 0.00 3 230 3" >>made.reps
is "a middle between two" "225 5" "$(medians made)"
echo "200 9.9 0.99 0.00 3 1 1" >>made.reps
is "a better probe makes the others doubtful" "1 1" "$(undisturbed made)"

# 300 ms of computation with 200 ms of communication: overlapped by 0, half, all but a tenth and, because of noise, more
# than all.
is "hidden" "300 200 500 0,300 200 400 50,200 300 320 90,300 200 290 100" "$(
    printf '%s\n' "300 200 500" "300 200 400" "200 300 320" "300 200 290" | hidden | paste -sd , -
)"

# On a machine with any load: lines of five facts and the figures, and the loop ends.
repeat tiny 2 3 echo 5 6 >out.txt
is "the figures" "5 6" "$(awk '{ print $6, $7 }' tiny.reps | sort -u)"
is "the facts" 0 "$(awk 'NF != 7 || !($1 > 0 && $2 > 0 && $3 >= 0 && $3 <= 1 && $4 >= 0 && $4 <= 1)' tiny.reps | wc -l)"
made=$(wc -l <tiny.reps) good=$(undisturbed tiny | wc -l)
is "the sum" "tiny: $made repetitions, $((made - good)) of them disturbed" "$(cat out.txt)"
checks=$((checks + 1))
[ "$good" = 2 ] || [ "$made" = 3 ] || fail "$good good ones of $made, and no more were made"

tally quiet_repetitions
