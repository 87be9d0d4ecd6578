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

set title "A step without overlap, by parts (black tick: with overlap)"
set style fill solid border rgb "white" # keeps neighbours apart, also where there is no colour
set border 1
set grid xtics noytics
unset ytics
set lmargin at screen 190.0 / width
set rmargin at screen 1 - 20.0 / width
set xlabel "share of the step without overlap"
set xrange [0:1.05]
set yrange [n + 0.6:0.4]
set key below horizontal samplen 1.2

# The phases' colours; communication has that of what is exposed.
parts = "forward backward communication optimizer rest"
array colour[5] = [sky, blue, "#F2A6C4", "#00664B", pale]
end_of(p) = p == 5 ? 1.0 : sum [k = 1:p] column(word(parts, k))
begin_of(p) = p == 1 ? 0.0 : end_of(p - 1)
middle_of(p) = (begin_of(p) + end_of(p)) / 2
# A part has its name in it, if there is room and no tick runs through it. A letter takes 7 pixels.
room(p) = (7 * strlen(word(parts, p)) + 6) * 1.05 / (width - 210)
name_in(p) = end_of(p) - begin_of(p) > room(p) && abs(column("overlapped") - middle_of(p)) > room(p) / 2 ? \
    word(parts, p) : ""
plot for [p = 1:5] file using (middle_of(p)):"row":(begin_of(p)):(end_of(p)):(column("row") - 0.36):(column("row") + 0.36) \
        with boxxyerror linecolor rgb colour[p] title word(parts, p), \
    for [p = 1:5] file using (middle_of(p)):"row":(name_in(p)) \
        with labels textcolor rgb (is_on_dark(word(parts, p)) ? "#FEFEFE" : "#010101") font ",12" notitle, \
    file using "overlapped":(column("row") - 0.45):(0):(0.9) with vectors nohead linewidth 3 linecolor rgb black notitle, \
    file using (0):"row":"run" with labels right offset -1, 0 notitle noenhanced
