# catalogue.awk: reads the mutants of tests/mutants/*.txt; README.md there says how they are written.
#
#   mode=list     one line per mutant: room, name, tests, rows (-: none), preset, reason to survive;
#                 with tabs
#   mode=check    complains of what is wrong with the catalogue, and ends with 1 if something is
#   mode=plant    makes the mistake `wanted` in the tree at `root`
#   mode=files    the files that the mutant `wanted` changes
#
# A text is looked for without regard to how it is broken into lines or indented, so that formatting
# does not hide it. It must be there exactly once.

function complain(words) {
    print room "/" name ": " words
    complaints++
}

# The whole file, and in SQUEEZED[path] the same with one space for every run of white space.
function read_file(path,    line, text) {
    if (path in SQUEEZED) return TEXT[path]
    while ((getline line <path) > 0) text = text line "\n"
    close(path)
    TEXT[path] = text
    SQUEEZED[path] = squeeze(text)
    return text
}

function squeeze(text) {
    gsub(/[ \t\n]+/, " ", text)
    return text
}

function count_of(text, part,    at, count) {
    while ((at = index(text, part)) > 0) {
        count++
        text = substr(text, at + length(part))
    }
    return count + 0
}

# Where in `text` the piece lies that becomes `part` when it is squeezed: BEGIN_AT, END_AT.
function locate(text, part,    i, at, c, first, position) {
    position = index(squeeze(text), part)
    at = 0
    BEGIN_AT = END_AT = 0
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c ~ /[ \t\n]/) {
            if (first) continue
            first = 1
        } else {
            first = 0
        }
        at++
        if (at == position) BEGIN_AT = i
        if (at == position + length(part) - 1) {
            END_AT = i
            return
        }
    }
}

function check_entry(    i, path) {
    if (name !~ /^[a-z0-9_]+$/) complain("a name has small letters, digits and _")
    if (name in SEEN) complain("the name is taken by room " SEEN[name])
    SEEN[name] = room
    if (!tests) complain("no test is named that should catch it")
    if (preset !~ /^(release|emulator|races)$/) complain("mutants.sh does not know the preset " preset)
    if (!what) complain("it does not say what mistake it is")
    if (!pairs) complain("there is nothing to find")
    for (i = 1; i <= pairs; i++) {
        path = root "/" FILE[i]
        if (read_file(path) == "") complain("there is no file " FILE[i])
        else if ((found = count_of(SQUEEZED[path], FIND[i])) != 1)
            complain(FILE[i] " has this text " found " times, not once: " FIND[i])
        if (FIND[i] == WITH[i]) complain("nothing changes")
    }
}

function plant(    i, path, text) {
    for (i = 1; i <= pairs; i++) {
        path = root "/" FILE[i]
        delete SQUEEZED[path]
        text = read_file(path)
        if (count_of(SQUEEZED[path], FIND[i]) != 1) {
            complain(FILE[i] " has this text not once: " FIND[i])
            return
        }
        locate(text, FIND[i])
        printf "%s%s%s", substr(text, 1, BEGIN_AT - 1), WITH[i], substr(text, END_AT + 1) >path
        close(path)
    }
}

function end_entry(    i) {
    if (!name) return
    entries++
    if (mode == "list")
        print room "\t" name "\t" tests "\t" (rows ? rows : "-") "\t" preset "\t" survives
    if (mode == "check") check_entry()
    if (wanted && name == wanted) {
        known = 1
        if (mode == "plant") plant()
        for (i = 1; mode == "files" && i <= pairs; i++) print FILE[i]
    }
    name = file = tests = rows = what = survives = ""
    pairs = 0
}

# A value that continues in further lines, which are indented.
function add(value) {
    sub(/^[ \t]+/, "", value)
    sub(/[ \t]+$/, "", value)
    if (key == "mutant") {
        end_entry()
        name = value
    } else if (key == "preset") preset = value # at the top of a file: of all its mutants
    else if (key == "file") file = value
    else if (key == "tests") tests = tests (tests ? " " : "") value
    else if (key == "rows") rows = rows (rows ? " " : "") value
    else if (key == "what") what = what (what ? " " : "") value
    else if (key == "survives") survives = survives (survives ? " " : "") value
    else if (key == "find") {
        if (!going_on) {
            pairs++
            FILE[pairs] = file
            FIND[pairs] = WITH[pairs] = ""
        }
        FIND[pairs] = FIND[pairs] (FIND[pairs] ? " " : "") squeeze(value)
    } else if (key == "with") WITH[pairs] = WITH[pairs] (WITH[pairs] ? " " : "") squeeze(value)
    else complain("line " FNR " of the file: what is \"" key "\"?")
}

FILENAME ~ /(^|\/)equivalents\.txt$/ { next } # of generated mutants

FNR == 1 {
    end_entry()
    preset = "release"
    room = FILENAME
    sub(/.*\//, "", room)
    sub(/\.txt$/, "", room)
}

/^#/ || /^[ \t]*$/ { next }

/^[ \t]/ {
    going_on = 1
    add($0)
    next
}

{
    going_on = 0
    key = $0
    sub(/:.*/, "", key)
    value = $0
    sub(/^[^:]*:/, "", value)
    add(value)
}

END {
    end_entry()
    if (wanted && !known) {
        print "there is no mutant " wanted
        complaints++
    }
    exit complaints > 0
}
