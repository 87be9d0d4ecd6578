# chapter.awk PAGE: a page as a chapter of the book. Links to other pages become links within the book, pictures get the
# whole path, and what is not in the book is no link any more. FOLDER is where the page's links begin. See book.

# "../08-collectives/README.zh.md" -> "08-collectives"; "" for what is not a page of the book
function page_of(target) {
    sub(/#.*/, "", target)
    sub(/\.zh\.md$/, ".md", target)
    sub(/^\.\.\//, "", target)
    if (target ~ /^([0-9][0-9]-[^\/]*|own-program)\/README\.md$/) sub(/\/README\.md$/, "", target)
    else if (target ~ /^(README|dp-to-ddp|symptoms|communication|teacher)\.md$/) sub(/\.md$/, "", target)
    else return ""
    return target
}

function relinked(rest, done, text, target, picture) {
    while (match(rest, /!?\[[^]]*\]\([^)]*\)/)) {
        done = done substr(rest, 1, RSTART - 1)
        text = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        picture = text ~ /^!/
        target = text
        sub(/^!?\[[^]]*\]\(/, "", target)
        sub(/\)$/, "", target)
        sub(/\]\([^)]*\)$/, "", text)
        sub(/^!?\[/, "", text)
        if (picture) done = done "![" text "](<" ENVIRON["FOLDER"] "/" target ">)"
        else if (target ~ /^(https?:|#)/) done = done "[" text "](" target ")"
        else if (page_of(target) != "") done = done "[" text "](#page-" page_of(target) ")"
        else done = done text
    }
    return done rest
}

/^```/ { inside = !inside }
{ print inside ? $0 : relinked($0) }
