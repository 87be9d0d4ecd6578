# ladder.gp: the ladder from DataParallel to DistributedDataParallel as a waterfall, a panel per network: a
# whole bar for the first and the last rung, between them the time that each ingredient saves or adds. Reads
# plots/bars-N.csv (row, rung, low_ms, high_ms, saved_ms, kind; kind is first, saves, takes, last or disturbed).
# bench/ablation.sh writes them, and plots/settings.gp.

load "plots/settings.gp"
name = "ladder"
width = 720
height = 70 + (80 + 25 * rows) * panels
load "plots/style.gp"

set multiplot title "From DP to DDP: what each ingredient changes, milliseconds per step" font ",16"
eval across
set lmargin at screen 130.0 / width
set rmargin at screen 1 - 60.0 / width
do for [n = 1:panels] {
    file = "plots/bars-".n.".csv"
    top = 80.0 + (80 + 25 * rows) * (n - 1)
    set tmargin at screen 1 - top / height
    set bmargin at screen 1 - (top + 25 * rows) / height
    eval unbounded
    stats file using "high_ms" name "ms" nooutput
    set xrange [0:1.12 * ms_max]
    set yrange [rows + 0.6:0.4]
    set title word(networks, n) offset 0, -0.6
    colour(unused) = strcol("kind") eq "first" ? 0xE69F00 : strcol("kind") eq "last" ? 0x0072B2 : \
        strcol("kind") eq "saves" ? 0x009E73 : strcol("kind") eq "takes" ? 0x882255 : 0x999999
    text(unused) = strcol("kind") eq "disturbed" ? "disturbed" : strcol("kind") eq "first" || strcol("kind") eq "last" ? \
        sprintf("%.2f", column("high_ms")) : sprintf("%+.2f", -column("saved_ms"))
    plot file using ((column("low_ms") + column("high_ms")) / 2):"row":"low_ms":"high_ms": \
            (column("row") - 0.36):(column("row") + 0.36):(colour(0)) with boxxyerror linecolor rgb variable, \
        file using "low_ms":"row":"low_ms":(strcol("kind") eq "takes" ? column("high_ms") : column("low_ms")): \
            (column("row") - 0.36):(column("row") + 0.36) with boxxyerror fillstyle transparent pattern 4 noborder linecolor rgb "#FFFFFF", \
        file using "high_ms":"row":(text(0)) with labels left offset 0.5, 0, \
        file using (0):"row":"rung" with labels right offset -1, 0
}
unset multiplot
