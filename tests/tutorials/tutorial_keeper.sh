#!/bin/sh
# tutorial_keeper.sh BIN_DIR: the program that ends all processes below a command: its exit status, and the processes that
# outlive the command or the keeper.
. "$(dirname "$0")/../programs/checks.sh"
keep=$bin/tutorial_keeper

refuse 2 'this is called by tutorials/run' "$keep"
refuse 2 './none: No such file or directory' "$keep" ./none

# ends STATUS COMMAND...
ends() {
    checks=$((checks + 1)) wanted=$1 status=0
    shift
    "$keep" "$@" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = "$wanted" ] && [ ! -s err.txt ] || fail "$*: status $status, not $wanted: $(cat err.txt)"
}
ends 0 true
ends 7 sh -c 'exit 7'
ends 137 sh -c 'kill -KILL $$'
ends 143 sh -c 'kill -TERM $$'
ends 0 echo one 'two three'
[ "$(cat out.txt)" = 'one two three' ] || fail "the output $(cat out.txt)"

# lives FILE: whether the process runs whose number the file holds; not so if only its exit status is left
lives() { grep -qs '^State:.[^Z]' "/proc/$(cat "$1")/status"; }
# A child, and the orphan of one in a session of its own
ends 0 sh -c 'sleep 1000 & echo $! >child; (setsid sh -c "echo \$\$ >orphan; exec sleep 1000" &); while [ ! -s orphan ]; do :; done'
for process in child orphan; do
    checks=$((checks + 1))
    ! lives $process || fail "the $process is left"
done

"$keep" sh -c 'echo $$ >command.new; mv command.new command; exec sleep 1000' &
keeper=$!
while [ ! -s command ]; do sleep 0.01; done
kill -KILL $keeper
while lives command; do sleep 0.01; done # until the test's time limit
checks=$((checks + 1))
tally tutorial_keeper
