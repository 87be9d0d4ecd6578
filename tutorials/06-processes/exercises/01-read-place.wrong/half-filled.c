/* The place was changed although a variable was wrong: it must stay as it was. */
static bool read_number(const char *text, int limit, int *number) {
    if (!text || text[0] < '0' || text[0] > '9') return false;
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value >= limit) return false;
    *number = (int)value;
    return true;
}

const char *read_place(Place *place, Lookup *lookup) {
    if (!read_number(lookup("WORLD_SIZE"), 1 << 20, &place->world_size) || place->world_size < 1)
        return "WORLD_SIZE";
    if (!read_number(lookup("RANK"), place->world_size, &place->rank)) return "RANK";
    if (!read_number(lookup("LOCAL_RANK"), place->world_size, &place->local_rank))
        return "LOCAL_RANK";
    return NULL;
}
