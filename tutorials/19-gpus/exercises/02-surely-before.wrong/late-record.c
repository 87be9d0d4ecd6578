/* The WAIT was issued before the RECORD: it waits for nothing. */
static bool follows(const StreamCall *call, const StreamCall *earlier) {
    if (call->stream == earlier->stream) return true;
    return call->kind == STREAM_WAIT && earlier->kind == STREAM_RECORD &&
           call->event == earlier->event;
}

bool surely_before(const StreamCall *calls, int count, int first, int second) {
    bool after[STREAM_MOST_CALLS] = {false}; // surely after `first`
    after[first] = true;
    for (int pass = 0; pass < count; pass++)
        for (int i = 0; i < count; i++)
            for (int k = 0; k < count; k++)
                if (after[k] && follows(&calls[i], &calls[k]) &&
                    (k < i || calls[i].stream != calls[k].stream))
                    after[i] = true;
    return second > first && after[second];
}
