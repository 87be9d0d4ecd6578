/* Each rank has the table of its own rows: nothing was added up. */
int confusion_matrix(ProcessGroup *group, const AnsweredRows *own, double *counts, Error *err) {
    size_t classes = own->classes;
    for (size_t i = 0; i < classes * classes; i++) counts[i] = 0;
    for (size_t row = 0; row < own->rows; row++)
        counts[(size_t)own->truths[row] * classes + (size_t)own->answers[row]]++;
    (void)group, (void)err;
    return 0;
}
