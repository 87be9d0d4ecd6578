/* Your part: when the unit's memory is allocated, filled and freed. */
int before_forward(WholeUnit *unit, ProcessGroup *group, Error *err) {
    (void)unit, (void)group, (void)err;
    return 0;
}

void after_forward(WholeUnit *unit, ProcessGroup *group) {
    (void)unit, (void)group;
}

int before_backward(WholeUnit *unit, ProcessGroup *group, Error *err) {
    (void)unit, (void)group, (void)err;
    return 0;
}

int after_backward(WholeUnit *unit, ProcessGroup *group, Error *err) {
    (void)unit, (void)group, (void)err;
    return 0;
}
