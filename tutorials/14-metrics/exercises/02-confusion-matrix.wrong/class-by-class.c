/* The whole table fits into one collective. */
int confusion_matrix(ProcessGroup *group, const AnsweredRows *own, double *counts, Error *err) {
    size_t classes = own->classes;
    for (size_t i = 0; i < classes * classes; i++) counts[i] = 0;
    for (size_t row = 0; row < own->rows; row++)
        counts[(size_t)own->truths[row] * classes + (size_t)own->answers[row]]++;
    for (size_t c = 0; c < classes; c++)
        if (pg_run(group, pg_all_reduce(&counts[c * classes], classes, PG_F64, PG_SUM), err) != 0)
            return -1;
    return 0;
}
