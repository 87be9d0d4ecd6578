# paper-breakdown.gp: the DDP paper's figure 6 beside ours: a step's parts without overlap, as shares of that step,
# and a tick where the step with overlap ends. The parts have their names above the first bar, and in each bar where
# there is room. Disturbed bars are grey. Reads plots/paper-breakdown.csv (row, run, forward, backward,
# communication, optimizer, rest, overlapped, disturbed).

name = "paper-breakdown"
set datafile separator ","
set datafile columnheaders
file = "plots/paper-breakdown.csv"
stats file using "row" name "row" nooutput
n = row_max
width = 680
height = 175 + 32 * n
left = 220.0
right = 20.0
load "plots/style.gp"

figure_title = "A step without overlap, by parts (figure 6)"
set title figure_title."\n{/*0.85 tick: with overlap; ours over emulated links}" font ",16"
set style fill solid border rgb "white" # keeps neighbours apart, also where there is no colour
eval across
set lmargin at screen left / width
set rmargin at screen 1 - right / width
set tmargin at screen panel_at(75)
set bmargin at screen panel_at(115 + 32 * n)
set xlabel "share of the step without overlap"

# Each part has a phase's colour and hatch; communication has those of the phase "exposed".
parts = "forward backward communication optimizer rest"
like = "forward backward exposed optimizer other"
kind_of(p) = sum [k = 1:words(kinds)] (word(kinds, k) eq word(like, p) ? k : 0)
fill(p) = column("disturbed") > 0 ? (p % 2 ? 0xDDDDDD : 0xC4C4C4) : int("0x".phase_colour[kind_of(p)][2:7])
end_of(p) = p == 5 ? 1.0 : sum [k = 1:p] column(word(parts, k))
begin_of(p) = p == 1 ? 0.0 : end_of(p - 1)
middle_of(p) = (begin_of(p) + end_of(p)) / 2
# A part has its name in it, if there is room and no tick runs through it. A letter takes 7 pixels.
per_pixel = 1.05 / (width - left - right)
room(p) = (7 * strlen(word(parts, p)) + 6) * per_pixel
name_in(p) = column("disturbed") == 0 && end_of(p) - begin_of(p) > room(p) && \
    abs(column("overlapped") - middle_of(p)) > room(p) / 2 ? word(parts, p) : ""

# The names above the bars: each over its part, right of the previous name, and within the bars' width.
array over[5]
array at[5]
do for [p = 1:5] {
    stats file using (column("row") == 1 ? middle_of(p) : NaN) name "part" nooutput
    over[p] = part_max
    at[p] = over[p]
    if (p > 1) { nearest = at[p - 1] + (room(p - 1) + room(p)) / 2 + 6 * per_pixel; if (at[p] < nearest) { at[p] = nearest } }
}
do for [k = 1:5] {
    p = 6 - k
    farthest = p == 5 ? 1.05 - room(5) / 2 : at[p + 1] - (room(p + 1) + room(p)) / 2 - 6 * per_pixel
    if (at[p] > farthest) { at[p] = farthest }
    set label p word(parts, p) at at[p], -0.35 center font ",13"
    set arrow p from at[p], -0.05 to over[p], 0.62 nohead linecolor rgb "#666666"
}
set xrange [0:1.05]
set yrange [n + 0.6:-0.65]
told(p) = sprintf("%s: %s %.1f %%", strcol("run"), word(parts, p), 100 * column(word(parts, p)))
told_end(unused) = sprintf("%s: with overlap %.1f %%", strcol("run"), 100 * column("overlapped"))
values = at_mouse('for [p = 1:5] file using (middle_of(p)):"row":(told(p))').\
    at_mouse('file using "overlapped":"row":(told_end(0))')
plot for [p = 1:5] file using (middle_of(p)):"row":(begin_of(p)):(end_of(p)):(column("row") - 0.36):(column("row") + 0.36): \
        (fill(p)) with boxxyerror linecolor rgb variable, \
    for [p = 1:5] file using (middle_of(p)):"row":(begin_of(p)):(column("disturbed") > 0 ? begin_of(p) : end_of(p)): \
        (column("row") - 0.36):(column("row") + 0.36) \
        with boxxyerror fillstyle transparent pattern hatch[kind_of(p)] noborder linecolor rgb hatch_colour[kind_of(p)], \
    for [p = 1:5] file using (middle_of(p)):"row":(name_in(p)) \
        with labels textcolor rgb (is_on_dark(word(parts, p)) ? "#FEFEFE" : "#010101") font ",12", \
    file using (0.25):"row":(column("disturbed") > 0 ? "disturbed" : "") with labels textcolor rgb "#010101" font ",12", \
    for [pass = 1:2] file using "overlapped":(column("row") - 0.45):(0):(0.9) with vectors nohead linewidth (pass == 1 ? 6 : 3) \
        linecolor rgb (pass == 1 ? "white" : black), \
    file using (0):"row":"run" with labels right offset -1, 0 noenhanced @values
