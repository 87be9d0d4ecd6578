/* A shared parameter was called complete at its first addition: half of it is missing. */
size_t completion_order(const size_t *additions, size_t count, const bool *frozen,
                        size_t parameters, size_t *order) {
    size_t complete = 0;
    (void)parameters;
    for (size_t i = 0; i < count; i++) {
        bool before = false;
        for (size_t j = 0; j < i; j++) before = before || additions[j] == additions[i];
        if (!frozen[additions[i]] && !before) order[complete++] = additions[i];
    }
    return complete;
}
