/* A text was read in another base than 10: with base 0 strtol guesses it from the first digits. */
const char *read_place(Place *place, Lookup *lookup) {
    static const char *names[] = {"WORLD_SIZE", "RANK", "LOCAL_RANK"};
    int v[3];
    for (int i = 0; i < 3; i++) {
        const char *t = lookup(names[i]);
        if (!t || !*t) return names[i];
        char *end;
        v[i] = (int)strtol(t, &end, 0);
        if (*end) return names[i];
        if (i == 0 ? v[0] < 1 : v[i] < 0 || v[i] >= v[0]) return names[i];
    }
    *place = (Place){v[1], v[0], v[2]};
    return NULL;
}
