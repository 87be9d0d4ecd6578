# peers.gp: the ratio of the peer's time to ours: a bar per pair, its quartiles, and a red tick at the aim.
# Reads plots/peers.csv (row, label, ratio, low, high, target).

name = "peers"
set datafile separator ","
set datafile columnheaders
stats "plots/peers.csv" using "row" name "row" nooutput
n = row_max
stats "plots/peers.csv" using "high" name "high" nooutput
width = 680
height = 130 + 26 * n
load "plots/style.gp"

set title "Our speed as a multiple of the peer's, in the same rounds"
eval across
set lmargin at screen 230.0 / width
set rmargin at screen 1 - 60.0 / width
set xlabel "times (in parentheses: ranks); the line is at 1, a tick at the aim"
set xrange [0:1.1 * (high_max > 1 ? high_max : 1)]
set yrange [n + 0.6:0.4]
set arrow 1 from 1, 0.4 to 1, n + 0.6 nohead linecolor rgb "#444444" front
file = "plots/peers.csv"
aim(target) = target > 0 ? target : -1 # no aim: outside the axis, because gnuplot warns of a column without numbers
plot file using (column("ratio") / 2):"row":(0):"ratio":(column("row") - 0.36):(column("row") + 0.36) \
        with boxxyerror linecolor rgb blue, \
    file using "ratio":"row":"low":"high" with xerrorbars pointtype -1 linecolor rgb black, \
    file using (aim(column("target"))):(column("row") - 0.42):(0):(0.84) with vectors nohead linecolor rgb vermilion linewidth 3, \
    file using (column("target") > column("high") ? column("target") : column("high")):"row":(sprintf("%.2f", column("ratio"))) with labels left offset 0.7, 0, \
    file using (0):"row":"label" with labels right offset -1, 0 noenhanced
