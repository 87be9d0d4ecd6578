/* Stream 1 waits for stream 0, and stream 2 for stream 1: so it waits for stream 0. */
static bool follows(const StreamCall *call, const StreamCall *earlier) {
    if (call->stream == earlier->stream) return true;
    return call->kind == STREAM_WAIT && earlier->kind == STREAM_RECORD &&
           call->event == earlier->event;
}

bool surely_before(const StreamCall *calls, int count, int first, int second) {
    if (second < first) return false;
    if (calls[first].stream == calls[second].stream) return true;
    for (int r = first; r < count; r++)
        for (int w = r + 1; w <= second; w++)
            if (calls[r].stream == calls[first].stream && calls[w].stream == calls[second].stream &&
                calls[r].kind == STREAM_RECORD && follows(&calls[w], &calls[r]))
                return true;
    return false;
}
