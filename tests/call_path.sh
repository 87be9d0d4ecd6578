#!/bin/sh
# call_path.sh: holds "one step, call by call" of dp/README.md and ddp/README.md against the code.
#
# A block of such a page begins with ```calls N functions M files, the most that it may take, and has a
# line for each function, indented below the function that calls it:
#
#     common/train/step.c:step_run
#       common/nn/tape.c:tape_backward
#         ddp/reducer.c:gradient_ready (on_ready)     what follows is for the reader
#
# Each function must be defined in that file, and its caller's body must call it by its name, or, with a
# word in parentheses, by that function pointer, which the called function's file sets to it. A first line
# without indentation needs no caller. Exit status 1 if a line no longer holds.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- dp/README.md ddp/README.md

cat "$@" | awk '
# The text of a function: from its definition, a line at column 0 that names it and ends no
# declaration, to the closing brace at column 0.
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
/^```calls/ {
    most_functions = $2; most_files = $4; inside = 1; functions = 0; files = 0
    split("", seen); depth_of_last = -1
    next
}
/^```/ && inside {
    inside = 0
    printf "%d functions in %d files\n", functions, files
    if (functions > most_functions) fail(functions " functions, and " most_functions " are allowed")
    if (files > most_files) fail(files " files, and " most_files " are allowed")
    blocks++
    next
}
inside && NF {
    match($0, /^ */); depth = RLENGTH
    split($1, place, ":"); file = place[1]; name = place[2]
    pointer = $2 ~ /^\([a-z_]+\)$/ ? substr($2, 2, length($2) - 2) : ""
    functions++
    if (!(file in seen)) { seen[file] = 1; files++ }
    text = body(file, name)
    if (text == "none") { fail(file " defines no function " name); next }
    for (d = depth - 1; d >= 0 && !(d in at); d--) ;
    for (i in at) if (i + 0 >= depth) delete at[i]
    if (depth > 0) {
        if (d < 0) fail($1 " has no caller above it")
        else if (pointer == "" && !calls(at[d], name)) fail(who[d] " no longer calls " name)
        else if (pointer != "" && !calls(at[d], pointer)) fail(who[d] " no longer calls " pointer)
        else if (pointer != "" && !sets(file, pointer, name)) fail(file " no longer makes " pointer " " name)
    }
    at[depth] = text; who[depth] = $1
}
END {
    if (blocks == 0) fail("the pages have no such block")
    printf "call_path: %d blocks, %d failures\n", blocks, failures
    exit failures > 0
}'
