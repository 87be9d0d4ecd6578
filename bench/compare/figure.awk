# figure.awk: what gnuplot leaves out of an SVG: a title and a description for those who cannot see it, colours for
# a dark page, and answers to the mouse: a value's text shows where it stands, and a click on a series fades it or
# brings it back (in the report and in a browser; a picture in a page of Markdown stays still). Numbers and lines
# stay as they are.
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
    print "[color=\"black\"], [color=\"rgb(  0,   0,   0)\"] { color: #ddd }"
    print "[color=\"#FFFFFF\"] { color: #16181c }"
    print "[fill=\"rgb(187, 187, 187)\"] { fill: #6c727b }" # what was disturbed stands back here, too
    print "[stroke=\"rgb(187, 187, 187)\"] { stroke: #6c727b }"
    print "[color=\"rgb(187, 187, 187)\"] { color: #6c727b }"
    print "[stroke=\"rgb(  0,   0,   0)\"], [stroke=\"rgb( 68,  68,  68)\"] { stroke: #bbb }"
    print "[stroke=\"rgb(102, 102, 102)\"] { stroke: #aaa }"
    print "[stroke=\"rgb(228, 228, 228)\"] { stroke: #3a3d43 }"
    print "[stroke=\"rgb(255, 255, 255)\"] { stroke: #16181c }"
    print "[fill=\"rgb(0,114,178)\"] { fill: #56b4e9 }"
    print "}"
    print "[onclick] { cursor: pointer }</style>"
    next
}

# A series. Its title would be gnuplot's command.
/<g id="gnuplot_plot_[0-9]+[a-z]*" *><title>/ {
    sub(/ *><title>.*<\/title>/, " onclick=\"if (!event.target.closest('.value')) " \
        "style.opacity = style.opacity ? '' : 0.1\">")
}

# The text of a point, which gnuplot hands to a script of its own: a title needs none.
/onmousemove="gnuplot_svg.showHypertext/ {
    text = $0
    sub(/.*showHypertext\(evt,'/, "", text)
    sub(/'\)".*/, "", text)
    $0 = "<g class=\"value\"><title>" escape(text) "</title>"
}

{ print }
