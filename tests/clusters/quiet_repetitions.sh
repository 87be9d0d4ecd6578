#!/bin/sh
# quiet_repetitions.sh BIN_DIR: which repetitions quiet.sh believes, and what it computes from them: by lines that
# are written here by hand, and by a series on the machine as it is.
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/quiet.sh"

is() { # WHAT WANTED FOUND
    checks=$((checks + 1))
    [ "$2" = "$3" ] || fail "$1: '$3', not '$2'"
}

# The best probe is 100 and 10: what follows the first line are a slow product, slow memory, a neighbour, a
# host that takes time, and what is just good enough.
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

# Compute 300 beside 200: nothing, half, all but a tenth and, by noise, more than all can be hidden.
is "hidden" "300 200 500 0,300 200 400 50,200 300 320 90,300 200 290 100" "$(
    printf '%s\n' "300 200 500" "300 200 400" "200 300 320" "300 200 290" | hidden | paste -sd , -
)"

# However loud the machine is: lines of five facts and the figures, and an end.
repeat tiny 2 3 echo 5 6 >out.txt
is "the figures" "5 6" "$(awk '{ print $6, $7 }' tiny.reps | sort -u)"
is "the facts" 0 "$(awk 'NF != 7 || !($1 > 0 && $2 > 0 && $3 >= 0 && $3 <= 1 && $4 >= 0 && $4 <= 1)' tiny.reps | wc -l)"
made=$(wc -l <tiny.reps) good=$(undisturbed tiny | wc -l)
is "the sum" "tiny: $made repetitions, $((made - good)) of them disturbed" "$(cat out.txt)"
checks=$((checks + 1))
[ "$good" = 2 ] || [ "$made" = 3 ] || fail "$good good ones of $made, and no more were made"

tally quiet_repetitions
