# page.awk: prints a page anew. In every console block the commands are run, and if what they print is not what
# stands there, what they print takes its place. See check_pages.

# Both sides of a comparison, with what may vary taken out.
function masked(text, k) {
    for (k = 1; k <= varying; k++) gsub(regex[k], "~", text)
    return text
}

# With QUICK, 60 timed steps are 9, of which tutorials/clock takes 6, and Ctrl-C comes after 1 s instead of 2.
function run(command, text, line, shell) {
    if (ENVIRON["QUICK"]) {
        gsub(/--steps 60 --log-every 1 /, "--steps 9 --log-every 1 ", command)
        gsub(/ -s INT 2 /, " -s INT 1 ", command)
    }
    shell = "timeout 60 sh -c " quoted(command) " 2>&1 </dev/null"
    text = ""
    while ((shell | getline line) > 0) text = text line "\n"
    close(shell)
    return text
}

function quoted(text) {
    gsub(/'/, "'\\''", text)
    return "'" text "'"
}

# The command that was read last has all of its old output: prints the old one or the new one.
function finish_command(now, wanted) {
    if (command == "") return
    now = run(command)
    wanted = old
    if (ENVIRON["QUICK"]) gsub(/\(the median of 40\)/, "(the median of 6)", wanted)
    printf "%s", masked(now) == masked(wanted) ? old : now
    command = old = ""
}

function print_excerpt(line, inside, found) {
    while ((getline line < (ENVIRON["ROOT"] "/" excerpt_file)) > 0) {
        if (line ~ ("ANCHOR_END: " excerpt_name "($|[^a-z_])")) inside = 0
        if (inside) print line
        if (line ~ ("ANCHOR: " excerpt_name "($|[^a-z_])")) inside = found = 1
    }
    close(ENVIRON["ROOT"] "/" excerpt_file)
    if (!found) {
        print "there is no ANCHOR: " excerpt_name " in " excerpt_file > "/dev/stderr"
        status = 1
    }
}

/^<!-- varies: / { regex[++varying] = substr($0, 14, length($0) - 17) }
/^<!-- not run/ { skipped = 1 }
/^<!-- excerpt: / { excerpt_file = $3; excerpt_name = $4 }

/^```/ && inside { # the end of a block
    if (inside == "console") finish_command()
    if (inside == "excerpt") print_excerpt()
    print
    inside = ""
    varying = skipped = 0
    excerpt_file = ""
    next
}
/^```/ {
    inside = "text"
    if ($0 == "```console" && !skipped) inside = "console"
    if (excerpt_file != "") inside = "excerpt"
    print
    next
}
inside == "excerpt" { next }
inside == "console" && /^\$ / {
    finish_command()
    command = substr($0, 3)
    print
    next
}
inside == "console" && command != "" && command ~ /\\$/ && old == "" { # a command of several lines
    command = substr(command, 1, length(command) - 1) $0
    print
    next
}
inside == "console" {
    old = old $0 "\n"
    next
}
{ print }
END { exit status }
