# status_tests.awk: the tests of a status that lack the one form of CONTRIBUTING.md,
#
#     if (f(..., err) != 0) return -1;
#
# awk -f tests/status_tests.awk pass=1 FILE... pass=2 FILE...: the first pass reads the declarations, the second prints
# "FILE:LINE: CALL" for each test of another form. A status function returns int, and its last parameter is an Error *;
# pointers and bools are tested by themselves. A static function hides another file's of its name, and a function
# pointer of a struct is called behind . or ->. A result that is also a number is put into a variable first.
#
#     f(..., err), !f(..., err)      in a condition or beside && || ?       breach
#     f(..., err) < 0, >= 0, == -1   breach
function closing(text, at,    depth, c) { # position of the parenthesis that closes the one at `at`; 0: not in the text
    for (depth = 0; at <= length(text); at++) {
        c = substr(text, at, 1)
        if (c == "(") depth++
        else if (c == ")" && --depth == 0) return at
    }
    return 0
}
# Reads a declaration from its name on, far enough to see the last parameter.
function declare(text,    name, member, kind, status) {
    member = match(text, /\(\*[a-z_0-9]+\)\(/)
    if (!member && !match(text, /[A-Za-z_0-9]+\(/)) return
    name = substr(text, RSTART, RLENGTH)
    gsub(/[(*)]/, "", name)
    status = text ~ /(^|[ \t])int \(?\*?[A-Za-z_0-9]+\)?\(/ && text !~ /unsigned int/ && text ~ /Error \*[a-z_]*\)[^()]*$/
    if (member) { if (status) pointers[name] = 1 }
    else if (text ~ /^static/ && FILENAME !~ /\.h$/) own[FILENAME, name] = status ? 1 : 2
    else if (status) public[name] = 1
}
function is_status(name, before) {
    if (before ~ /(->|\.)$/) return name in pointers
    if ((FILENAME, name) in own) return own[FILENAME, name] == 1
    return name in public
}
function check(text, begin, name,    before, after, end) {
    before = substr(text, 1, begin - 1)
    if (!is_status(name, before)) return
    end = closing(text, begin + length(name))
    if (!end) return
    after = substr(text, end + 1)
    sub(/^[ \t]+/, "", after)
    sub(/[A-Za-z_0-9.>\[\]-]*$/, "", before) # "self->" of a function pointer
    sub(/[ \t]+$/, "", before)
    if (after ~ /^[!=]= 0/) return
    if (after ~ /^([<>]|[!=]=|&&|\|\||\?)/ ||
        before ~ /(!|&&|\|\||(if|while) \(|(EXPECT|CHECK|CHECK_OK|assert_true|assert_false)\()$/)
        print FILENAME ":" line ": " name
}
# A statement, or a part up to a line that ends with ; { } or :, is joined to one text.
function scan(    rest, from) {
    rest = statement; from = 0
    while (match(rest, /[A-Za-z_][A-Za-z_0-9]*\(/)) {
        check(statement, from + RSTART, substr(rest, RSTART, RLENGTH - 1))
        from += RSTART + RLENGTH - 1
        rest = substr(statement, from + 1)
    }
}
FNR == 1 { statement = head = "" }
{
    text = $0
    gsub(/"([^"\\]|\\.)*"/, "\"\"", text)
    sub(/\/\/.*/, "", text)
    if (text ~ /^[ \t]*(\/\*|\*|#)/) next
}
pass == 1 {
    if (head == "" && text !~ /^([a-z].*[a-zA-Z_0-9]\(|[ \t]+int \(\*)/) next
    head = head " " text
    sub(/^ +/, "", head)
    if (head !~ /[;{]/) next
    sub(/[;{].*/, "", head)
    declare(head)
    head = ""
    next
}
{
    if (statement == "") line = FNR
    sub(/^[ \t]+/, " ", text)
    statement = statement text
    if (text ~ /[;{}:][ \t]*$/) { scan(); statement = "" }
}
