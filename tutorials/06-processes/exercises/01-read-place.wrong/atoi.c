/* A text that is no number was read as one: atoi does not complain, strtol tells. */
const char *read_place(Place *place, Lookup *lookup) {
    const char *world = lookup("WORLD_SIZE"), *rank = lookup("RANK"), *local = lookup("LOCAL_RANK");
    if (!world || atoi(world) < 1) return "WORLD_SIZE";
    if (!rank || atoi(rank) < 0 || atoi(rank) >= atoi(world)) return "RANK";
    if (!local || atoi(local) < 0 || atoi(local) >= atoi(world)) return "LOCAL_RANK";
    *place = (Place){atoi(rank), atoi(world), atoi(local)};
    return NULL;
}
