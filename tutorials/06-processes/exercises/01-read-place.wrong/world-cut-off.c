/* A number that is too large for an int was cut off: look at the long before you store it. */
static bool read_number(const char *text, long *number) {
    char *end;
    if (!text) return false;
    *number = strtol(text, &end, 10);
    return end != text && *end == '\0';
}
const char *read_place(Place *place, Lookup *lookup) {
    long w, r, l;
    if (!read_number(lookup("WORLD_SIZE"), &w) || w < 1) return "WORLD_SIZE";
    if (!read_number(lookup("RANK"), &r) || r < 0 || r >= w) return "RANK";
    if (!read_number(lookup("LOCAL_RANK"), &l) || l < 0 || l >= w) return "LOCAL_RANK";
    *place = (Place){(int)r, (int)w, (int)l};
    return NULL;
}
