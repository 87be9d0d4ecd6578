# paper-breakdown.gp: the DDP paper's figure 6 beside ours: a step's parts without overlap, as shares of that step,
# and a tick where the step with overlap ends. Reads plots/paper-breakdown.csv (row, run, forward, backward,
# communication, optimizer, rest, overlapped).

name = "paper-breakdown"
set datafile separator ","
set datafile columnheaders
file = "plots/paper-breakdown.csv"
stats file using "row" name "row" nooutput
n = row_max
width = 680
height = 180 + 30 * n
load "plots/style.gp"

set title "A step without overlap, by parts; the black tick is its length with overlap"
set border 1
set grid xtics noytics
unset ytics
set lmargin at screen 190.0 / width
set rmargin at screen 1 - 20.0 / width
set xlabel "share of the step without overlap"
set xrange [0:1.05]
set yrange [n + 0.6:0.4]
set key below horizontal samplen 1.2
f(unused) = column("forward")
b(unused) = f(0) + column("backward")
c(unused) = b(0) + column("communication")
o(unused) = c(0) + column("optimizer")
plot file using ((0 + f(0)) / 2):"row":(0):(f(0)):(column("row") - 0.36):(column("row") + 0.36) \
        with boxxyerror linecolor rgb sky title "forward", \
    file using ((f(0) + b(0)) / 2):"row":(f(0)):(b(0)):(column("row") - 0.36):(column("row") + 0.36) \
        with boxxyerror linecolor rgb blue title "backward", \
    file using ((b(0) + c(0)) / 2):"row":(b(0)):(c(0)):(column("row") - 0.36):(column("row") + 0.36) \
        with boxxyerror linecolor rgb orange title "communication", \
    file using ((c(0) + o(0)) / 2):"row":(c(0)):(o(0)):(column("row") - 0.36):(column("row") + 0.36) \
        with boxxyerror linecolor rgb green title "optimizer", \
    file using ((o(0) + 1) / 2):"row":(o(0)):(1.0):(column("row") - 0.36):(column("row") + 0.36) \
        with boxxyerror linecolor rgb grey title "rest", \
    file using "overlapped":(column("row") - 0.45):(0):(0.9) with vectors nohead linewidth 3 linecolor rgb black notitle, \
    file using (0):"row":"run" with labels right offset -1, 0 notitle noenhanced
