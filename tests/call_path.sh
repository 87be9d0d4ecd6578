#!/bin/sh
# call_path.sh: holds "one step, call by call" of dp/README.md and ddp/README.md against the code.
#
# A block of such a page begins with ```calls and has a line for each function, which is called by the one
# in the line before:
#
#     common/nn/tape.c:tape_backward_from
#     ddp/reducer.c:gradient_ready (on_ready)
#
# The caller's body must call it by its name or, with a word in parentheses, call that: a function pointer
# to which the called function's file sets it, or a function that is given it. The first block of a page
# may have 10 functions in 6 files, from main to the ready event; the second 8 in 3, from there to the sum;
# later ones are not limited.
# Exit status 1 if a line no longer holds.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- dp/README.md ddp/README.md

awk '
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
FNR == 1 { block = 0 }
/^```calls/ {
    block++; blocks++; inside = 1; functions = 0; files = 0; caller = ""
    split("", seen)
    next
}
/^```/ && inside {
    inside = 0
    printf "%s: %d functions in %d files\n", FILENAME, functions, files
    if (functions > (block == 1 ? 10 : block == 2 ? 8 : 99)) fail(FILENAME ": " functions " functions are too many")
    if (files > (block == 1 ? 6 : block == 2 ? 3 : 99)) fail(FILENAME ": " files " files are too many")
    next
}
inside && NF {
    split($1, place, ":"); file = place[1]; name = place[2]
    pointer = $2 ~ /^\([a-z_]+\)$/ ? substr($2, 2, length($2) - 2) : ""
    functions++
    if (!(file in seen)) { seen[file] = 1; files++ }
    text = body(file, name)
    if (text == "none") fail(file " defines no function " name)
    else if (caller != "" && pointer == "" && !calls(text_of_caller, name)) fail(caller " does not call " name)
    else if (caller != "" && pointer != "" && !calls(text_of_caller, pointer)) fail(caller " does not call " pointer)
    else if (pointer != "" && !sets(file, pointer, name)) fail(file " does not make " pointer " " name)
    caller = name; text_of_caller = text
}
END {
    if (blocks == 0) fail("the pages have no such block")
    printf "call_path: %d blocks, %d failures\n", blocks, failures
    exit failures > 0
}' "$@"
