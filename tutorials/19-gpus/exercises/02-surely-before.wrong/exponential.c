/* It did not end within 10 seconds */
bool surely_before(const StreamCall *calls, int count, int first, int second) {
    if (first == second) return true;
    for (int k = second - 1; k >= first; k--) {
        bool follows = calls[k].stream == calls[second].stream ||
                       (calls[second].kind == STREAM_WAIT && calls[k].kind == STREAM_RECORD &&
                        calls[k].event == calls[second].event);
        if (follows && surely_before(calls, count, first, k)) return true;
    }
    return false;
}
