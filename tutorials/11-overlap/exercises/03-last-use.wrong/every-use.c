/* A shared parameter was called complete twice: once for each of its uses. */
size_t completion_order(const size_t *additions, size_t count, const bool *frozen,
                        size_t parameters, size_t *order) {
    size_t complete = 0;
    (void)parameters;
    for (size_t i = 0; i < count && complete < parameters; i++)
        if (!frozen[additions[i]]) order[complete++] = additions[i];
    return complete;
}
