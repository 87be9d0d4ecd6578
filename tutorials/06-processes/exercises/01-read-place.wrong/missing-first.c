/* RANK is the first that is wrong, but you say LOCAL_RANK. */
static bool read_number(const char *text, int *number) {
    if (!text || text[0] == '\0') return false;
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value != (int)value) return false;
    *number = (int)value;
    return true;
}

const char *read_place(Place *place, Lookup *lookup) {
    static const char *const NAMES[] = {"WORLD_SIZE", "RANK", "LOCAL_RANK"};
    Place mine;
    for (int i = 0; i < 3; i++)
        if (!lookup(NAMES[i])) return NAMES[i];
    if (!read_number(lookup("WORLD_SIZE"), &mine.world_size) || mine.world_size < 1)
        return "WORLD_SIZE";
    if (!read_number(lookup("RANK"), &mine.rank) || mine.rank < 0 || mine.rank >= mine.world_size)
        return "RANK";
    if (!read_number(lookup("LOCAL_RANK"), &mine.local_rank) || mine.local_rank < 0 ||
        mine.local_rank >= mine.world_size)
        return "LOCAL_RANK";
    *place = mine;
    return NULL;
}
