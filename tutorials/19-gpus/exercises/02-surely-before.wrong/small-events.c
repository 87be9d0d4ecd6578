/* Streams and events are any numbers. */
bool surely_before(const StreamCall *calls, int count, int first, int second) {
    bool streams[64] = {false}, events[64] = {false};
    if (second < first || count == 0) return false;
    for (int i = first; i <= second; i++) {
        const StreamCall *call = &calls[i];
        if (i == first) streams[call->stream & 63] = true;
        if (call->kind == STREAM_RECORD) events[call->event & 63] = streams[call->stream & 63];
        if (call->kind == STREAM_WAIT && events[call->event & 63])
            streams[call->stream & 63] = true;
    }
    return streams[calls[second].stream & 63];
}
