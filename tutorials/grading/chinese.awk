# chinese.awk GLOSSARY ENGLISH.md CHINESE.md: compares a page with its translation. See check_chinese.
# With accept=1 it prints the Chinese page anew, with the code blocks of the English one.
BEGIN { FS = "\n" }
FNR == 1 { part++; inside = 0 }

function fail(text) {
    print "FAILED: " page ": " text > "/dev/stderr"
    failures++
}

# ---- the glossary: english,chinese,avoid,note ---------------------------------------------------------------
part == 1 {
    if (FNR == 1) next
    split($0, field, ",")
    english[++terms] = tolower(field[1])
    chinese[terms] = field[2]
    count = split(field[3], words, "|")
    for (k = 1; k <= count; k++) avoided[words[k]] = field[2]
    next
}

# ---- the two pages: part 2 is English, part 3 Chinese -------------------------------------------------------
part == 3 { page = FILENAME }
/^```/ && !inside {
    inside = 1
    blocks[part]++
    text[part, blocks[part]] = $0
    if (part == 3) line[++lines] = "block " blocks[part]
    next
}
inside {
    text[part, blocks[part]] = text[part, blocks[part]] "\n" $0
    if (/^```/) inside = 0
    next
}
{
    if (part == 3) line[++lines] = "text " $0
    if (/^<!--/) next
    if (/^#+ /) headings[part] = headings[part] " " (index($0, " ") - 1)
    take_references($0)
    take_links($0)
    if (part == 3)
        for (word in avoided)
            if (index($0, word)) fail(FNR ": \"" word "\" is not how the field says it: " avoided[word])
    if (part == 3) check_emphasis($0)
    gsub(/`[^`]*`/, " ")
    prose[part] = prose[part] " " $0
}

# CommonMark does not end an emphasis between a punctuation mark and a letter: "*例：*一" shows its asterisks.
function check_emphasis(rest, k, before, opened) {
    gsub(/`[^`]*`/, "`", rest)
    gsub(/\*\*/, "*", rest)
    while ((k = index(rest, "*")) > 0) {
        before = substr(rest, 1, k - 1)
        rest = substr(rest, k + 1)
        if (opened && before ~ /(：|，|。|；|？|！|）|、|”)$/ && rest ~ /^[A-Za-z0-9\344-\351]/)
            fail(FNR ": an emphasis ends between a punctuation mark and a letter: put the mark outside")
        opened = !opened
    }
}

# [text](target), without what follows a #; README.zh.md counts as README.md
function take_links(rest, target) {
    while (match(rest, /\]\([^)]+\)/)) {
        target = substr(rest, RSTART + 2, RLENGTH - 3)
        rest = substr(rest, RSTART + RLENGTH)
        sub(/#.*/, "", target)
        sub(/\.zh\.md$/, ".md", target)
        if (target != "") seen["the link to " target, part]++
        if (target != "") targets["the link to " target]
    }
}

# `file.c:/pattern/`
function take_references(rest, target) {
    while (match(rest, /`[A-Za-z0-9_.\/-]+:\/[^`]*\/`/)) {
        target = "the reference " substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        seen[target, part]++
        targets[target]
    }
}

# How often one of the words of an English term stands in the page, also in the plural.
function uses(term, count, k, n, words, rest) {
    n = split(term, words, "|")
    for (k = 1; k <= n; k++) {
        rest = tolower(prose[2])
        while (match(rest, "(^|[^a-z_-])" words[k] "(s|es)?([^a-z_-]|$)")) {
            count++
            rest = substr(rest, RSTART + RLENGTH - 1)
        }
    }
    return count + 0
}

function has_one_of(list, k, n, words) {
    n = split(list, words, "|")
    for (k = 1; k <= n; k++)
        if (index(prose[3], words[k])) return 1
    return 0
}

END {
    if (blocks[2] + 0 != blocks[3] + 0)
        fail((blocks[3] + 0) " code blocks, and the English page has " (blocks[2] + 0))
    else if (accept) {
        for (k = 1; k <= lines; k++) {
            if (line[k] ~ /^text /) print substr(line[k], 6)
            else print text[2, substr(line[k], 7)]
        }
    } else
        for (k = 1; k <= blocks[2]; k++)
            if (text[2, k] != text[3, k]) fail("code block " k " is not the English page's (--accept copies it)")
    if (headings[2] != headings[3])
        fail("the levels of its headings are" headings[3] ", and on the English page" headings[2])
    for (target in targets)
        if (seen[target, 2] + 0 != seen[target, 3] + 0)
            fail(target " stands there " (seen[target, 3] + 0) " times, and on the English page " (seen[target, 2] + 0))
    for (k = 1; k <= terms; k++)
        if (uses(english[k]) >= 3 && !has_one_of(chinese[k]))
            fail("the English page speaks of \"" english[k] "\", and this one never of " chinese[k])
    exit failures > 0
}
