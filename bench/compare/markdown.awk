# markdown.awk: the report's Markdown as one HTML page with its figures inside.
#
#   folder=DIR awk -v title="..." -v style=page.css -f markdown.awk report.md >report.html
#   folder=DIR awk -v fragment=ladder -f markdown.awk section.md >section.html
#
# With fragment it is no page of its own but a part of one, and the ids of its figures begin with that word. A
# line that is nothing but [section](FILE) brings in such a part as it is.
#
# Knows what report.sh writes and no more: headings, paragraphs, lists, tables, fenced code, details, `code`,
# **bold**, *italics* and images that stand alone on a line (SVGs of `folder`, whose ids get a prefix
# each, since in one page they would collide).
function escape(text) {
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/>/, "\\&gt;", text)
    return text
}

function span(text) {
    text = escape(text)
    while (match(text, /`[^`]*`/))
        text = substr(text, 1, RSTART - 1) "<code>" substr(text, RSTART + 1, RLENGTH - 2) "</code>" \
            substr(text, RSTART + RLENGTH)
    while (match(text, /\*\*[^*]*\*\*/))
        text = substr(text, 1, RSTART - 1) "<b>" substr(text, RSTART + 2, RLENGTH - 4) "</b>" \
            substr(text, RSTART + RLENGTH)
    while (match(text, /\*[^* ][^*]*\*/))
        text = substr(text, 1, RSTART - 1) "<i>" substr(text, RSTART + 1, RLENGTH - 2) "</i>" \
            substr(text, RSTART + RLENGTH)
    return text
}

# Closes the block that is open and opens another: "p", "ul", "table", "pre" or "" for none.
function block(kind) {
    if (open == kind) return
    if (open) print "</" open ">" (open == "table" ? "</div>" : "")
    if (kind) print (kind == "table" ? "<div class=\"wide\">" : "") "<" kind ">"
    open = kind
}

function figure(file,    id, line) {
    id = file
    sub(/\.svg$/, "", id)
    if (fragment) id = fragment "-" id
    print "<figure>"
    while ((getline line < (folder "/" file)) > 0) {
        if (line ~ /^<\?xml|^<!DOCTYPE|"http.*dtd">/) continue
        gsub(/ id='/, "&" id "-", line)
        gsub(/ id="/, "&" id "-", line)
        gsub(/href='#/, "&" id "-", line)
        gsub(/url\(#/, "&" id "-", line)
        print line
    }
    close(folder "/" file)
    print "</figure>"
}

# A row of a table. The first waits for the line under it, which says which columns stand to the right.
function table_row(line, tag,    cells, n, i) {
    n = split(line, cells, /[ ]*\|[ ]*/)
    printf line ~ /\| disturbed \|/ ? "<tr class=\"disturbed\">" : "<tr>"
    for (i = 2; i < n; i++) printf "<%s%s>%s</%s>", tag, right[i] ? " class=\"number\"" : "", span(cells[i]), tag
    print "</tr>"
}

BEGIN {
    folder = ENVIRON["folder"] # awk would take a backslash in -v for the begin of something else
    if (!fragment) page_begins()
}

function page_begins(    line) {
    print "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">"
    print "<meta name=\"viewport\" content=\"width=device-width\">"
    print "<title>" escape(title) "</title>\n<style>"
    while ((getline line < style) > 0) print line
    print "</style>\n</head>\n<body>"
}

/^```/ {
    block(open == "pre" ? "" : "pre")
    next
}

open == "pre" {
    print escape($0)
    next
}

/^#+ / {
    level = index($0, " ") - 1
    block("")
    print "<h" level ">" span(substr($0, level + 2)) "</h" level ">"
    next
}

/^!\[/ {
    block("")
    sub(/^.*\]\(/, "")
    sub(/\).*$/, "")
    figure($0)
    next
}

/^\|[-:| ]+\|$/ && open == "table" {
    n = split($0, cells, /\|/)
    split("", right)
    for (i = 2; i < n; i++) right[i] = cells[i] ~ /-:/
    table_row(head, "th")
    next
}

/^\|/ {
    if (open == "table") {
        table_row($0, "td")
    } else {
        block("table")
        head = $0
    }
    next
}

/^\[section\]\(.*\)$/ {
    block("")
    file = folder "/" substr($0, 11, length($0) - 11)
    while ((getline line < file) > 0) print line
    close(file)
    next
}

/^<\/?details/ {
    block("")
    print
    next
}

/^- / {
    block("ul")
    print "<li>" span(substr($0, 3))
    next
}

/^$/ {
    block("")
    next
}

{
    if (open != "ul") block("p") # a list item may go on over several lines
    print span($0)
}

END {
    block("")
    if (!fragment) print "</body>\n</html>"
}
