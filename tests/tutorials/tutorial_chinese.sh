#!/bin/sh
# tutorial_chinese.sh BIN_DIR: check_chinese reports nothing for the tree's pages, and every planted mistake in changed
# pages.
tutorials=$(cd "$(dirname "$0")/../../tutorials" && pwd)
. "$(dirname "$0")/../programs/checks.sh"
run 'the pages of the tree, each in Chinese' "$tutorials/check_chinese" --complete

copy="$work/a copy"
mkdir -p "$copy/grading" "$copy/01-one"
cp "$tutorials/check_chinese" "$tutorials/glossary.csv" "$copy/"
cp "$tutorials/grading/chinese.awk" "$copy/grading/"
cat >"$copy/01-one/README.md" <<'END'
# One

A rank, another rank and a third rank use `a_gradient_bucket` of [the list](../list.md).

```console
$ true
```

## The end

See `ddp/reducer.c:/^int reducer_finish/`.
END
echo '# The list' >"$copy/list.md"
page="$copy/01-one/README.zh.md"
translate() { # SED-SCRIPT: writes a correct page, changed by the script
    sed -e 's/^# One/# 一/; s/^A rank.*/每个 rank 都用 `a_gradient_bucket`，见[列表](..\/list.md)。/' \
        -e 's/^## The end/## 结尾/; s/^See/见/' -e "${1:-}" "$copy/01-one/README.md" >"$page"
}
accepts() {
    translate "$@"
    run "a page changed by '$*'" "$copy/check_chinese"
}
finds() { # 'WORDS' SED-SCRIPT: the change is reported with these words
    translate "$2"
    checks=$((checks + 1))
    if "$copy/check_chinese" >out.txt 2>&1; then fail "it lets pass: $2"; fi
    grep -qF -- "$1" out.txt || fail "no \"$1\" for $2: $(cat out.txt)"
}

accepts
finds 'code block 1 is not' 's/true/false/'
finds '0 code blocks' '/^```/d'
finds 'levels of its headings' 's/^## 结/### 结/'
finds 'link to ../list.md stands there 0 times' 's/](..*md)/]/'
finds 'leads nowhere' 's/list.md/list.zh.md/'
finds 'the reference' 's/int reducer/void reducer/'
finds 'speaks of "rank"' 's/每个 rank/每个进程/'
for word in 等级 世界大小 全归约 规约 批大小; do finds "\"$word\"" "s/结尾/$word/"; done
accepts 's/^\$ true/$ true/'
finds 'an emphasis ends between' 's/^每个/*例：*每个/'
finds 'an emphasis ends between' 's/^每个/**例**，*例。*每个/'
accepts 's/^每个/*例*：每个/'
accepts 's/^每个/例：*每*个/'

# Links of a Chinese page may lead to Chinese pages.
echo '# 列表' >"$copy/list.zh.md"
accepts 's/list.md/list.zh.md/'
# --accept updates the blocks and leaves the rest unchanged.
translate 's/true/false/'
run 'taking the blocks over' "$copy/check_chinese" --accept
run 'the page afterwards' "$copy/check_chinese"
grep -q '结尾' "$page" || fail "--accept has lost the translation: $(cat "$page")"
# A missing page is named, and is a failure with --complete.
rm "$page"
run 'a page that is missing' "$copy/check_chinese"
grep -q 'not in Chinese yet: 01-one/README.md' out.txt || fail "a missing page is not named"
checks=$((checks + 1))
! "$copy/check_chinese" --complete >/dev/null 2>&1 || fail "--complete lets a missing page pass"
tally tutorial_chinese
