# figure.awk: what gnuplot leaves out of an SVG: a title and a description for those who cannot see it, and
# colours for a dark page. Numbers and lines stay as they are.
#
#   title="..." text="..." awk -f figure.awk NAME.svg
#
# The dark colours are rules of CSS for the colours that gnuplot wrote, so that a reader that knows no CSS shows
# the light figure.
function escape(text) {
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    return text
}

/^<svg *$/ { print "<svg role=\"img\""; next }

/^<title>/ { $0 = "<title>" escape(ENVIRON["title"]) "</title>" }

/^<desc>/ {
    print "<desc>" escape(ENVIRON["text"]) "</desc>"
    print "<style>@media (prefers-color-scheme: dark) {"
    print "rect[fill=\"#ffffff\"] { fill: #16181c }"
    print "[fill=\"black\"], [fill=\"rgb(0,0,0)\"], [fill=\"rgb(68,68,68)\"], [fill=\"rgb(102,102,102)\"] { fill: #ddd }"
    print "polygon[fill=\"rgb( 68,  68,  68)\"] { fill: #7d838c }"
    print "[color=\"black\"] { color: #ddd }"
    print "[stroke=\"rgb(  0,   0,   0)\"], [stroke=\"rgb( 68,  68,  68)\"] { stroke: #bbb }"
    print "[stroke=\"rgb(102, 102, 102)\"] { stroke: #aaa }"
    print "[stroke=\"rgb(228, 228, 228)\"] { stroke: #3a3d43 }"
    print "[stroke=\"rgb(255, 255, 255)\"] { stroke: #16181c }"
    print "[fill=\"rgb(0,114,178)\"] { fill: #56b4e9 }"
    print "}</style>"
    next
}

{ print }
