/* Your part: three texts become three numbers, or the name of the wrong one. */
const char *read_place(Place *place, Lookup *lookup) {
    (void)lookup;
    *place = (Place){.rank = 0, .world_size = 1};
    return NULL;
}
