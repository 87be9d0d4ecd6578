/* A text that is no number was read as one: atoi does not complain, strtol tells. */
const char *read_place(Place *place, Lookup *lookup) {
    static const char *names[] = {"WORLD_SIZE", "RANK", "LOCAL_RANK"};
    int v[3];
    for (int i = 0; i < 3; i++) {
        const char *t = lookup(names[i]);
        if (!t) return names[i];
        char *end;
        v[i] = (int)strtol(t, &end, 10);
        if (end == t) return names[i];
        if (i == 0 ? v[0] < 1 : v[i] < 0 || v[i] >= v[0]) return names[i];
    }
    *place = (Place){v[1], v[0], v[2]};
    return NULL;
}
