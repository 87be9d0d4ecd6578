# style.gp: one look for all figures. The colours are Okabe and Ito's, which people with any colour
# vision tell apart; the two that Okabe and Ito lack are Paul Tol's.

black = "#000000"
orange = "#E69F00"
sky = "#56B4E9"
green = "#009E73"
yellow = "#F0E442"
blue = "#0072B2"
vermillion = "#D55E00"
purple = "#CC79A7"
indigo = "#332288"
wine = "#882255"
grey = "#999999"
pale = "#DDDDDD"

# DP is orange and DDP blue in every figure, one device is black.
colour_of(strategy) = strategy eq "dp" ? orange : strategy eq "ddp" ? blue : black
bar_label(column) = stringcolumn(column) eq "single" ? "one\ndevice" : \
    (stringcolumn(column) eq "dp" ? "DP\n" : "DDP\n").stringcolumn(5)

# Phases of a step in the order in which they are stacked: computing is blue and green, moving data is
# warm, the rest is grey.
phases = "data scatter replicate forward gather loss backward reduce exposed optimizer other"
array phase_colour[11] = [grey, yellow, orange, sky, purple, indigo, blue, vermillion, wine, green, pale]

set terminal svg size width, height fixed enhanced font "sans-serif,13" background "white"
set output dir."/".name.".svg"
set datafile separator ","
set datafile missing NaN
set border 3 linecolor rgb "#444444"
set tics nomirror
set grid ytics linecolor rgb "#E4E4E4" linewidth 1 linetype 1
set style fill solid noborder

# Figures of several panels end with a panel that holds nothing but the key they share:
# eval key_panel, then plot keyentries.
key_panel = "unset title; unset xlabel; unset ylabel; unset tics; unset border; unset grid; unset logscale;".\
    "set yrange [0:1]; set xrange [0:1]; set key center center horizontal reverse Left;".\
    "set lmargin at screen 0.02; set rmargin at screen 0.98;".\
    "set bmargin at screen 0.02; set tmargin at screen 0.13"
