#!/bin/sh
# call_path.sh: checks "one step, call by call" in the pages below against the code.
#
# A block of such a page begins with ```calls. Each of its lines names a function that is called by the function in the
# previous line:
#
#     common/nn/tape.c:tape_backward
#     ddp/reducer.c:gradient_ready (on_ready)
#
# The caller's body must call the function by its name. With a word in parentheses it must call that instead: a function
# pointer that the called function's file sets, or a function to which the called function is passed.
#
# Blocks of a walk name their end, ```calls to the sum. The walk of a page is the sequence of these blocks; the table
# below limits its length up to each end. Other blocks show a function's own calls. Exit status 1 if a line is no longer
# true, or a walk is too long.
set -eu
cd "$(dirname "$0")/.."
all=0
[ $# -gt 0 ] || { all=1; set -- common/train/README.md dp/README.md ddp/README.md; }

limits='
common/train/README.md to linear_backward 7 4
dp/README.md to the devices 8 5
dp/README.md to the sum 10 6
ddp/README.md to pg_start 12 6
ddp/README.md to the sum 19 9
'

awk -v limits="$limits" -v checks_all=$all '
BEGIN {
    lines = split(limits, line, "\n")
    for (i = 1; i <= lines; i++)
        if (match(line[i], / [0-9]+ [0-9]+$/)) limit[substr(line[i], 1, RSTART - 1)] = substr(line[i], RSTART + 1)
}
# Returns the text of a function: from its definition (a line at column 0 with its name that is not a declaration) to
# the closing brace at column 0.
function body(file, name,    line, text, inside, head) {
    text = ""; inside = 0; head = ""
    while ((getline line < file) > 0) {
        if (!inside && line ~ /^[a-zA-Z_]/) head = ""
        if (!inside) {
            head = head line "\n"
            if (line ~ /;[ \t]*$/ || line ~ /^}/) head = ""
            if (line ~ /\{[ \t]*$/ && head ~ ("(^|[^a-zA-Z0-9_])" name "\\(")) { inside = 1; continue }
            if (line ~ /\{[ \t]*$/) head = ""
        } else if (line ~ /^}/) break
        else text = text line "\n"
    }
    close(file)
    return inside ? text : "none"
}
function calls(text, name) { return text ~ ("(^|[^a-zA-Z0-9_])" name "\\(") }
function sets(file, pointer, name,    line, found) {
    found = 0
    while ((getline line < file) > 0)
        if (line ~ (pointer " = &?" name "[,;})]") || line ~ ("[(, ]" name "[,)]")) found = 1
    close(file)
    return found
}
function fail(message) { print "call_path: " message; failures++ }
FNR == 1 { functions = files = 0; split("", seen) }
/^```calls/ { blocks++; inside = 1; walk = substr($0, 10); caller = ""; next }
/^```/ && inside {
    inside = 0
    if (walk == "") next
    end = FILENAME " " walk
    printf "%s: %d functions in %d files\n", end, functions, files
    if (!(end in limit)) { fail(end ": is not in the table of limits"); next }
    split(limit[end], most, " "); delete limit[end]
    if (functions > most[1]) fail(end ": " functions " functions, at most " most[1])
    if (files > most[2]) fail(end ": " files " files, at most " most[2])
    next
}
inside && NF {
    split($1, place, ":"); file = place[1]; name = place[2]
    pointer = $2 ~ /^\([a-z_]+\)$/ ? substr($2, 2, length($2) - 2) : ""
    if (walk != "" && !($1 in seen)) { seen[$1] = 1; functions++ }
    if (walk != "" && !(file in seen)) { seen[file] = 1; files++ }
    text = body(file, name)
    if (text == "none") fail(file " defines no function " name)
    else if (caller != "" && pointer == "" && !calls(text_of_caller, name)) fail(caller " does not call " name)
    else if (caller != "" && pointer != "" && !calls(text_of_caller, pointer)) fail(caller " does not call " pointer)
    else if (pointer != "" && !sets(file, pointer, name)) fail(file " does not make " pointer " " name)
    caller = name; text_of_caller = text
}
END {
    if (blocks == 0) fail("the pages have no such block")
    if (checks_all) for (end in limit) fail("no page has the walk " end)
    printf "call_path: %d blocks, %d failures\n", blocks, failures
    exit failures > 0
}' "$@"
