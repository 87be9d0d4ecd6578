# tables.sh: rows of fields separated by tabs, as tables of a section and of the terminal.

tabbed() {
    local IFS=$'\t'
    echo "$*"
}

# Tab-separated rows as a Markdown table, and as aligned columns for the terminal. A column in which every field begins
# with a number stands to the right.
markdown_table() {
    awk -F'\t' '{
            line[NR] = "|"
            for (i = 1; i <= NF; i++) {
                line[NR] = line[NR] " " $i " |"
                if (NR > 1 && $i !~ /^[-+]?[0-9]|^-$|^disturbed$/) words[i] = 1
            }
        }
        NR == 1 { columns = NF }
        END {
            for (r = 1; r <= NR; r++) {
                print line[r]
                if (r > 1) continue
                printf "|"
                for (i = 1; i <= columns; i++) printf "%s|", words[i] ? "---" : "---:"
                print ""
            }
        }'
}

terminal_table() {
    awk -F'\t' '{
            for (i = 1; i <= NF; i++) {
                cell[NR, i] = $i
                if (length($i) > wide[i]) wide[i] = length($i)
            }
        }
        END {
            for (r = 1; r <= NR; r++) {
                line = ""
                for (i = 1; i <= NF; i++) line = line sprintf(i < 3 ? "%-*s  " : "%*s  ", wide[i], cell[r, i])
                sub(/ +$/, "", line)
                print line
            }
        }'
}
