/* Your part: when an all-gather is started, and when it is waited for. */
int use_unit(AheadUnit *units, size_t count, size_t u, int direction, ProcessGroup *group,
             Error *err) {
    (void)units, (void)count, (void)u, (void)direction, (void)group, (void)err;
    return 0;
}

void drop_unit(AheadUnit *unit) {
    (void)unit;
}
