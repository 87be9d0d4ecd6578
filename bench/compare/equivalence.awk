# equivalence.awk: rows of compare_tensors --csv -> rows of equivalence.csv; see compare_files in
# equivalence.sh, which gives the variables. Ends with 1 unless all expected rows are there and held.
BEGIN {
    FS = OFS = ","
}

NR == 1 {
    for (i = 1; i <= NF; i++) column[$i] = i
    next
}

{
    name = $column["tensor"]
    kind = name ~ /(running_mean|running_var|num_batches_tracked)$/ ? "buffer" : what
    bitwise = $column["bitwise"] == "1"
    small = $column["max_abs"] ~ /^[0-9]/ && $column["max_abs"] + 0 <= tolerance * $column["max_b"]
    held = bitwise || (required == "tolerance" && small)
    if ($column["max_b"] + 0 > largest) largest = $column["max_b"] + 0
    print model, a, b, kind, step, name, $column["count"], $column["max_abs"], $column["max_rel"], \
        $column["max_ulp"], bitwise, required, (required == "bitwise" ? 0 : tolerance), held
    rows++
    broken += !held
}

END {
    where = model " " a " " b " " what " step " step
    if (rows != expected || rows == 0) problem = rows + 0 " of " expected " tensors were compared"
    else if (broken) problem = broken " of " rows " tensors differ" (required == "bitwise" ? "" : \
        " by more than the tolerance")
    else if (largest == 0) problem = "all values are zero, so equality says nothing"
    if (problem) print "error: " where ": " problem > "/dev/stderr"
    exit problem != ""
}
