/* A parameter that was not used never becomes complete, and was put at the end. */
static bool comes_again(const size_t *additions, size_t count, size_t i) {
    for (size_t later = i + 1; later < count; later++)
        if (additions[later] == additions[i]) return true;
    return false;
}

size_t completion_order(const size_t *additions, size_t count, const bool *frozen,
                        size_t parameters, size_t *order) {
    size_t complete = 0;
    (void)parameters;
    for (size_t i = 0; i < count; i++)
        if (!frozen[additions[i]] && !comes_again(additions, count, i))
            order[complete++] = additions[i];
    for (size_t k = 0; k < parameters; k++) {
        bool used = frozen[k];
        for (size_t i = 0; i < count; i++) used = used || additions[i] == k;
        if (!used) order[complete++] = k;
    }
    return complete;
}
