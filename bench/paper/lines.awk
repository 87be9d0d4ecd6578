# lines.awk: rows "panel,run,x,y,disturbed", those of a run together and by rising x, as what a figure of lines reads:
# besides these, position, where x stands; at the end of each line its label; and label_y, the height at which that is
# written.
#
#   awk -v ranked=1 -v gap=0.09 -f lines.awk
#
# With ranked=1 a position is the rank of x in its panel, so that 0, 1 and 200 stand side by side, otherwise x itself.
# Labels that end at the same x are gap, a share of the panel's largest y, apart at least: all move out of the way as
# far as is needed, but none down to the axis.
BEGIN {
    FS = OFS = ","
    print "panel,run,x,y,disturbed,position,label,label_y"
}

{
    panel[NR] = $1
    run[NR] = $2
    x[NR] = $3
    y[NR] = $4
    row[NR] = $0
    if ($4 > top[$1]) top[$1] = $4 + 0
    last[$1, $2] = NR
    if (!(($1, $3) in is_x)) {
        is_x[$1, $3] = 1
        all[$1, ++xs[$1]] = $3
    }
}

function position_of(r,    i, below) {
    if (!ranked) return x[r]
    for (i = 1; i <= xs[panel[r]]; i++) below += all[panel[r], i] + 0 < x[r] + 0
    return below + 1
}

# Puts row r at its place among the labels that end where it does, from the lowest to the highest.
function insert(r,    group, i, n) {
    group = panel[r] SUBSEP x[r]
    n = ++labels[group]
    for (i = n; i > 1 && y[at[group, i - 1]] + 0 > y[r] + 0; i--) at[group, i] = at[group, i - 1]
    at[group, i] = r
}

function spread(group,    turn, i, low, high, lack) {
    for (turn = 0; turn < 100; turn++)
        for (i = 2; i <= labels[group]; i++) {
            low = at[group, i - 1]
            high = at[group, i]
            lack = gap * top[panel[low]] - (height[high] - height[low])
            if (lack <= 0) continue
            height[low] -= lack / 2
            height[high] += lack / 2
            if (i == 2 && height[low] < gap * top[panel[low]] / 2) height[low] = gap * top[panel[low]] / 2
        }
}

END {
    for (r = 1; r <= NR; r++)
        if (last[panel[r], run[r]] == r) {
            height[r] = y[r]
            insert(r)
        }
    for (group in labels) spread(group)
    for (r = 1; r <= NR; r++)
        print row[r], position_of(r), (r in height ? run[r] : ""), (r in height ? sprintf("%.6g", height[r]) : "NaN")
}
