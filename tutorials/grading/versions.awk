# versions.awk: versions of a solution, each told by what is replaced in it. An exercise's EE-name.wrong holds the wrong
# ones, each with the sentence that the grader must answer; EE-name.right those in another style that get all points.
# A step's PROGRAM.run holds versions of its program, one for each exercise whose functions tutorials/run calls there,
# and its PROGRAM.breaks one for each mistake of --break and for some flags:
#
#     wrong NAME: SENTENCE      (right NAME: what is other about it; run EE-name: functions; break NAME: the mistake; flag NAME: what it prints)
#     <<<<
#     lines of the solution, which must stand there once
#     ====
#     what stands there instead
#     >>>>                      (and so on, as often as needed)
#
#     awk -v list=1 -f versions.awk FILE                   "NAME<tab>SENTENCE" of each
#     awk -v name=NAME -f versions.awk FILE SOLUTION       the solution with these replacements; status 1 and a line on
#                                                          stderr if one of them does not fit
function refuse(what) {
    print file ": " current ": " what >"/dev/stderr"
    broken = 1
    exit 1
}
FNR == NR && FNR == 1 { file = FILENAME }
FNR == NR || list {
    if (state == "" && /^#/) next
    if (state == "" && /^(wrong|right|run|break|flag) [a-z0-9-]+/) {
        current = $2
        sub(/:$/, "", current)
        sentence = index($0, ": ") ? substr($0, index($0, ": ") + 2) : ""
        if (current in known) refuse("there are two of this name")
        known[current]
        if (list) print current "\t" sentence
    } else if (state == "" && $0 == "<<<<") {
        state = "find"
        count[current]++
        find[current, count[current]] = with[current, count[current]] = "\n"
    } else if (state == "find" && $0 == "====") state = "with"
    else if (state == "with" && $0 == ">>>>") state = ""
    else if (state == "find") find[current, count[current]] = find[current, count[current]] $0 "\n"
    else if (state == "with") with[current, count[current]] = with[current, count[current]] $0 "\n"
    else if (NF) refuse("not understood: " $0)
    next
}
{ solution = solution $0 "\n" }
END {
    if (broken) exit 1
    current = name
    if (state != "") refuse("the last replacement has no end")
    if (list) exit 0
    if (!count[name]) refuse("there is no such version")
    text = "\n" solution
    for (i = 1; i <= count[name]; i++) {
        wanted = find[name, i]
        at = index("\n" solution, wanted)
        if (wanted == "\n" || !at) refuse("these lines are not in the solution any more:" wanted)
        if (index(substr("\n" solution, at + 1), wanted)) refuse("these lines stand in the solution twice:" wanted)
        at = index(text, wanted)
        if (!at) refuse("a replacement took what the next one wants:" wanted)
        text = substr(text, 1, at - 1) with[name, i] substr(text, at + length(wanted))
    }
    if (text == "\n" solution) refuse("nothing is other than in the solution")
    printf "%s", substr(text, 2)
}
