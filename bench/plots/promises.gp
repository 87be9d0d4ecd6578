# promises.gp: each promise's price per step, the difference to DDP's defaults: bars and quartiles over the rounds.
# Reads plots/promises.csv (row, label, price, low, high, disturbed): disturbed bars are grey.

name = "promises"
set datafile separator ","
set datafile columnheaders
file = "plots/promises.csv"
stats file using "row" name "row" nooutput
stats file using "high" name "high" nooutput
stats file using "low" name "low" nooutput
n = row_max
width = 680
height = 90 + 24 * n
load "plots/style.gp"

set title "A promise's price: milliseconds added to (right) or saved from (left) a step"
eval across
set lmargin at screen 215.0 / width
set rmargin at screen 1 - 70.0 / width
left = low_min < 0 ? low_min : 0
right = high_max > 0 ? high_max : 0
set xrange [left - 0.12 * (right - left):right + 0.12 * (right - left)]
set yrange [n + 0.6:0.4]
set arrow 1 from 0, 0.4 to 0, n + 0.6 nohead linecolor rgb "#444444" front
colour(unused) = column("disturbed") > 0 ? 0xBBBBBB : column("price") < 0 ? 0x0072B2 : 0xD55E00
told(unused) = sprintf("%s: %+.2f ms", strcol("label"), column("price"))
values = at_mouse('file using "price":"row":(told(0))')
plot file using (column("price") / 2):"row":(0):"price":(column("row") - 0.36):(column("row") + 0.36):(colour(0)) \
        with boxxyerror linecolor rgb variable, \
    file using "price":"row":"low":"high" with xerrorbars pointtype -1 linecolor rgb black, \
    file using (column("high") > 0 ? column("high") : 0):"row":(sprintf("%+.2f", column("price"))) \
        with labels left offset 0.7, 0, \
    file using (left - 0.12 * (right - left)):"row":"label" with labels right offset -1, 0 noenhanced @values
