/* It crashed (SIGSEGV): it read or wrote memory that is not its own. */
size_t completion_order(const size_t *additions, size_t count, const bool *frozen,
                        size_t parameters, size_t *order) {
    size_t last[16], complete = 0;
    (void)parameters;
    for (size_t i = 0; i < count; i++) last[additions[i]] = i;
    for (size_t i = 0; i < count; i++)
        if (!frozen[additions[i]] && last[additions[i]] == i) order[complete++] = additions[i];
    return complete;
}
