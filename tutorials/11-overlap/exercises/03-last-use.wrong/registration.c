/* This is the order of registration, backwards; what counts is what backward does. */
size_t completion_order(const size_t *additions, size_t count, const bool *frozen,
                        size_t parameters, size_t *order) {
    size_t complete = 0;
    (void)parameters;
    for (size_t k = parameters; k-- > 0;) {
        bool used = false;
        for (size_t i = 0; i < count; i++) used = used || additions[i] == k;
        if (used && !frozen[k]) order[complete++] = k;
    }
    return complete;
}
