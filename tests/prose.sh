#!/bin/sh
# prose.sh: spelling, usage and our own list of phrases (tests/prose.txt) in comments, messages and English pages.
#
#   tests/prose.sh [PATH...]        these, or the whole tree; exit status 1 if there is a finding
#   tests/prose.sh --install        only makes the virtual environment with codespell and proselint (PyPI) that
#                                   this script looks for, ~/.cache/ddpc/prose
#
# Prints FILE:LINE: PHRASE -> BETTER. Identifiers, code blocks of pages and Chinese pages are left out: the tools read
# a copy of each file in which everything but prose is blank, so that line numbers are the file's. A tool that is missing
# is named, and its check is skipped; the list needs awk alone.
set -eu
cd "$(dirname "$0")/.."
venv=${XDG_CACHE_HOME:-$HOME/.cache}/ddpc/prose
PATH=$venv/bin:$PATH
case ${1:-} in
--install)
    python3 -m venv "$venv" && "$venv/bin/pip" install --quiet codespell proselint || exit 2
    exit 0
    ;;
--help | -*) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# Files that git does not ignore; in a copy without git, all files.
{ git ls-files -co --exclude-standard -- "$@" 2>/dev/null || find "${@:-.}" -type f; } | sed 's|^\./||' |
    grep -E '\.(c|h|cu|cuh|cpp|md|sh|py|awk|cmake|man)$|CMakeLists\.txt$' |
    grep -vE '\.zh\.md$|^tests/prose\.|/out/' | sort -u >"$copy/files"
sed 's|[^/]*$||; s|^|'"$copy/text/"'|' "$copy/files" | sort -u | xargs mkdir -p

# Writes each file's prose into the copy, and prints the findings of the list.
tr '\n' '\0' <"$copy/files" | xargs -0 awk -v copy="$copy/text/" '
    function read_list(    line, at) {
        while ((getline line < "tests/prose.txt") > 0) {
            if (line ~ /^except /) exceptions[++exception_count] = substr(line, 8)
            else if (line !~ /^#/ && (at = index(line, " -> "))) {
                patterns[++pattern_count] = "(^|[^a-z_0-9/$<.-])(" substr(line, 1, at - 1) ")([^a-z_0-9/>=(-]|$)"
                better[pattern_count] = substr(line, at + 4)
                any = any (any == "" ? "" : "|") substr(line, 1, at - 1)
            }
        }
    }
    # Returns the comments and strings of a line of C.
    function prose_of_c(line,    out) {
        out = ""
        if (line ~ /^[ \t]*#[ \t]*include/) return out
        for (;;) {
            if (inside) {
                if (!match(line, /\*\//)) return out line
                out = out substr(line, 1, RSTART - 1)
                line = substr(line, RSTART + 2)
                inside = 0
            }
            if (!match(line, /"([^"\\]|\\.)*"|\x27([^\x27\\]|\\.)*\x27|\/\/|\/\*/)) return out
            begin = substr(line, RSTART, 2)
            if (begin == "//") return out " " substr(line, RSTART + 2)
            if (begin == "/*") inside = 1
            else if (begin ~ /^"/) out = out " " substr(line, RSTART + 1, RLENGTH - 2)
            line = substr(line, RSTART + (inside ? 2 : RLENGTH))
        }
    }
    # Returns a line of a page without code.
    function prose_of_page(line) {
        if (line ~ /^ *```/) { inside = !inside; return "" }
        if (inside || line ~ /^    /) return ""
        gsub(/`[^`]*`/, "code", line)
        gsub(/\]\([^)]*\)|<[^>]*>/, " ", line)
        return line
    }
    function excepted(path, text,    i, colon, dashes) {
        for (i = 1; i <= exception_count; i++) {
            colon = index(exceptions[i], ": ")
            dashes = index(exceptions[i], " -- ")
            if (path == substr(exceptions[i], 1, colon - 1) &&
                index(text, substr(exceptions[i], colon + 2, dashes - colon - 2)))
                return 1
        }
        return 0
    }
    # Checks phrases that begin in the last line and may end in the next.
    function check(next_line,    both, own, i, found, words) {
        both = tolower(last " " next_line)
        if (last == "" || both !~ any) return
        own = length(last)
        for (i = 1; i <= pattern_count; i++) {
            words = both
            if (!match(words, patterns[i]) || RSTART > own) continue
            found = substr(words, RSTART, RLENGTH)
            gsub(/^[^a-z]+|[^a-z]+$/, "", found)
            if (!excepted(path, last " " next_line))
                print path ":" last_number ": " found " -> " better[i]
        }
    }
    function begin_file() {
        if (path != "") { check(""); close(copy path) }
        path = FILENAME; inside = 0; last = ""
        page = path ~ /\.(md|man)$/; c = path ~ /\.(c|h|cu|cuh|cpp)$/
        printf "" > (copy path)
    }
    BEGIN { read_list() }
    FNR == 1 { begin_file() }
    {
        text = c ? prose_of_c($0) : page ? prose_of_page($0) : $0
        print text > (copy path)
        tidy = text
        gsub(/\\n/, " ", tidy)
        sub(/^[ \t]*[*#]+/, "", tidy)
        gsub(/[ \t]+/, " ", tidy)
        sub(/^ /, "", tidy)
        sub(/ $/, "", tidy)
        check(tidy)
        last = tidy; last_number = FNR
    }
    END { begin_file() }' >"$copy/findings"

cd "$copy/text"
if command -v codespell >/dev/null; then
    # "fro": from, in buffers called `to` and `fro`; "te": letters of a drawing.
    codespell --ignore-words-list=fro,te,tooo . >>"$copy/findings" || true
else
    echo "prose: there is no codespell: spelling is not checked (tests/prose.sh --install)"
fi
if command -v proselint >/dev/null; then
    # Disabled: typography (source text is ASCII), and checks that take tables and formats for sentences.
    echo '{"checks": {"typography": false, "lexical_illusions": false, "weasel_words": false, "dates_times": false,
        "uncomparables": false, "misc": {"phrasal_adjectives": false}}}' >.proselintrc.json # --config has no effect in 0.16
    find . '(' -name '*.md' -o -name '*.[ch]' ')' -print0 | sort -z |
        xargs -0r proselint -o compact check 2>&1 | sed "s|^$copy/text/||" >>"$copy/findings" || true
else
    echo "prose: there is no proselint: usage is not checked (tests/prose.sh --install)"
fi
sed 's|^\./||' "$copy/findings" | sort -u | sort -s -t : -k 1,1 -k 2,2n
echo "prose: $(wc -l <"$copy/files") files, $(wc -l <"$copy/findings") findings"
[ ! -s "$copy/findings" ]
