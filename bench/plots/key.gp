# key.gp: the key of a figure of phases, with the colours and hatches of its bars: the words of key_names in rows of five, the first
# row key_top pixels above the figure's lower edge. A figure sets both and loads this file before its last plot.

do for [k = 1:words(key_names)] {
    p = 1
    do for [kind = 1:words(kinds)] { if (word(kinds, kind) eq word(key_names, k)) { p = kind } }
    x = 30 + (width - 40) / 5 * ((k - 1) % 5)
    y = key_top - 21 * ((k - 1) / 5)
    set object 2 * k rectangle from screen real(x) / width, real(y) / height to screen (x + 26.0) / width, (y + 12.0) / height \
        fillstyle solid border rgb "white" fillcolor rgb phase_colour[p]
    set object 2 * k + 1 rectangle from screen real(x) / width, real(y) / height to screen (x + 26.0) / width, (y + 12.0) / height \
        fillstyle transparent pattern hatch[p] noborder fillcolor rgb hatch_colour[p]
    set label 100 + k word(key_names, k) at screen (x + 33.0) / width, (y + 6.0) / height left
}
