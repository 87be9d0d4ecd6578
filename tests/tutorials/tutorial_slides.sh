#!/bin/sh
# tutorial_slides.sh BIN_DIR: the slides of both plans are made in both languages, load nothing from outside, and have a
# slide for each heading of their source, the figures and the animated step. Without pandoc: skipped.
teaching=$(cd "$(dirname "$0")/../../tutorials/teaching" && pwd)
. "$(dirname "$0")/../programs/checks.sh"
TUTORIAL_BUILD=$(cd "$bin/.." && pwd)
export TUTORIAL_BUILD
command -v pandoc >/dev/null || {
    "$teaching/slides" two-hours && status=0 || status=$?
    exit $status
}
for lang in en zh; do
    for plan in two-hours two-weeks; do
        slides="$work/some slides/$plan $lang.html" source=$teaching/$plan.md
        [ $lang = en ] || source=$teaching/$plan.zh.md
        run "$plan in $lang" "$teaching/slides" --lang $lang $plan "$slides"
        checks=$((checks + 5))
        wanted=$(awk '/^```/ { inside = !inside } !inside && /^##? / { n++ } END { print n + 1 }' "$source")
        [ "$(grep -c '<section' "$slides")" = "$wanted" ] || fail "$plan in $lang has not $wanted slides"
        ! grep -oE '<(img|script|link|iframe)[^>]*(src|href)="[^"]*"' "$slides" | grep -v '="data:' || fail "$plan in $lang needs other files"
        [ "$(grep -c '<img src="data:image/svg' "$slides")" = "$(grep -c '^!\[' "$source")" ] || fail "$plan in $lang lacks figures"
        grep -q '<iframe src="data:text/html[^"]*stepModel' "$slides" || fail "no step plays in $plan in $lang"
        ! grep -q 'varies:' "$slides" || fail "comments of the source are in $plan in $lang"
    done
done
grep -q '<html[^>]*lang="zh-CN"' "$work/some slides/two-hours zh.html" || fail "the Chinese slides do not say that they are Chinese"
for arguments in '' '--lang fr two-hours' '--lang' 'three-hours'; do
    status=0 checks=$((checks + 1))
    # shellcheck disable=SC2086
    "$teaching/slides" $arguments >/dev/null 2>&1 || status=$?
    [ "$status" = 2 ] || fail "status $status of slides $arguments"
done
tally tutorial_slides
