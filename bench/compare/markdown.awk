# markdown.awk: the report's Markdown as one HTML page with its figures inside.
#
#   folder=DIR awk -v title="..." -f markdown.awk report.md >report.html
#
# Knows what report.sh writes and no more: headings, paragraphs, lists, tables, fenced code, `code`,
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
    if (open) print "</" open ">"
    if (kind) print "<" kind ">"
    open = kind
    rows = 0
}

function figure(file,    id, line) {
    id = file
    sub(/\.svg$/, "", id)
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

function table_row(    cells, n, i, tag) {
    n = split($0, cells, /[ ]*\|[ ]*/)
    tag = rows++ ? "td" : "th"
    printf "<tr>"
    for (i = 2; i < n; i++) printf "<%s>%s</%s>", tag, span(cells[i]), tag
    print "</tr>"
}

BEGIN {
    folder = ENVIRON["folder"] # awk would take a backslash in -v for the begin of something else
    print "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">"
    print "<meta name=\"viewport\" content=\"width=device-width\">"
    print "<title>" escape(title) "</title>\n<style>"
    print "body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }"
    print "body { font: 16px/1.5 sans-serif }"
    print "figure { margin: 1rem 0 } svg { max-width: 100%; height: auto }"
    print "table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }"
    print "th, td { padding: .2rem .7rem; border-bottom: 1px solid #ddd; text-align: left }"
    print "pre { background: #f5f5f5; padding: .7rem; overflow-x: auto; font-size: .8rem }"
    print "code { background: #f5f5f5 }\n</style>\n</head>\n<body>"
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

/^\|[-:| ]+\|$/ { next }

/^\|/ {
    block("table")
    table_row()
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
    print "</body>\n</html>"
}
