/* A rank that is not below the world size was accepted: ranks go from 0 to WORLD_SIZE - 1. */
static bool read_number(const char *text, int *number) {
    if (!text || text[0] < '0' || text[0] > '9') return false;
    char *end;
    *number = (int)strtol(text, &end, 10);
    return *end == '\0';
}

const char *read_place(Place *place, Lookup *lookup) {
    Place mine;
    if (!read_number(lookup("WORLD_SIZE"), &mine.world_size) || mine.world_size < 1)
        return "WORLD_SIZE";
    if (!read_number(lookup("RANK"), &mine.rank)) return "RANK";
    if (!read_number(lookup("LOCAL_RANK"), &mine.local_rank)) return "LOCAL_RANK";
    *place = mine;
    return NULL;
}
