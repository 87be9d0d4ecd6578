/* The first call is the RECORD itself, and the second waits for it. */
bool surely_before(const StreamCall *calls, int count, int first, int second) {
    if (second <= first) return false;
    if (calls[first].stream == calls[second].stream) return true;
    for (int r = first + 1; r < second; r++)
        for (int w = r + 1; w <= second; w++)
            if (calls[r].kind == STREAM_RECORD && calls[r].stream == calls[first].stream &&
                calls[w].kind == STREAM_WAIT && calls[w].event == calls[r].event &&
                (w == second || surely_before(calls, count, w, second)))
                return true;
    return false;
}
