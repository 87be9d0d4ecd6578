/* The event was recorded before the first call: it does not say that the call is over. */
static bool follows(const StreamCall *call, const StreamCall *earlier) {
    if (call->stream == earlier->stream) return true;
    return call->kind == STREAM_WAIT && earlier->kind == STREAM_RECORD &&
           call->event == earlier->event;
}

bool surely_before(const StreamCall *calls, int count, int first, int second) {
    bool after[STREAM_MOST_CALLS] = {false}; // surely after `first`
    for (int k = 0; k <= first; k++) after[k] = calls[k].stream == calls[first].stream;
    for (int i = 1; i < count; i++)
        for (int k = 0; k < i; k++)
            if (after[k] && follows(&calls[i], &calls[k])) after[i] = true;
    return second > first && after[second];
}
