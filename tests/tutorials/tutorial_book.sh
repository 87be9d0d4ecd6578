#!/bin/sh
# tutorial_book.sh BIN_DIR: the book contains every page in both languages, its links have targets, and it loads nothing
# from outside. Without pandoc: skipped.
tutorials=$(cd "$(dirname "$0")/../../tutorials" && pwd)
. "$(dirname "$0")/../programs/checks.sh"
TUTORIAL_BUILD=$(cd "$bin/.." && pwd)
export TUTORIAL_BUILD
command -v pandoc >/dev/null || {
    "$tutorials/book" && status=0 || status=$?
    exit $status
}
for lang in en zh; do
    book="$work/a book in $lang.html"
    run "the book in $lang" "$tutorials/book" --lang $lang "$book"
    for page in "$tutorials"/README.md "$tutorials"/[0-9][0-9]-*/README.md "$tutorials"/dp-to-ddp.md "$tutorials"/own-program/README.md \
        "$tutorials"/symptoms.md "$tutorials"/communication.md "$tutorials"/teacher.md; do
        name=${page#"$tutorials"/} name=${name%.md} name=${name%/README}
        checks=$((checks + 1))
        [ "$(grep -c "id=\"page-$name\"" "$book")" = 1 ] || fail "$name is not in the book in $lang"
    done
    grep -oE ' id="[^"]+"' "$book" | sed 's/.*="//; s/"$//' | sort -u >ids
    gone=$(grep -oE 'href="#[^"]+"' "$book" | sed 's/^href="#//; s/"$//' | sort -u | comm -23 - ids)
    [ -z "$gone" ] || fail "links that lead nowhere: $gone"
    checks=$((checks + 2))
    ! grep -oE '<(img|script|link|embed)[^>]*(src|href)="[^"]*"' "$book" | grep -v '="data:' || fail "the book in $lang needs other files"
    grep -qE '<svg|data:image/svg' "$book" || fail "there are no figures in the book in $lang"
done
grep -q '<html[^>]*lang="zh-CN"' "$work/a book in zh.html" || fail "the Chinese book does not say that it is Chinese"
for arguments in '--lang fr' '--lang'; do
    status=0
    # shellcheck disable=SC2086
    "$tutorials/book" $arguments >/dev/null 2>&1 || status=$?
    [ "$status" = 2 ] || fail "status $status of book $arguments"
done
tally tutorial_book
