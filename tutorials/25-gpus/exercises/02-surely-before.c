/* 02-surely-before.c: happens-before on streams. The task is in 02-surely-before.h. */
#include "tutorials/25-gpus/exercises/02-surely-before.h"

// SOLUTION BEGIN
static bool follows(const StreamCall *call, const StreamCall *earlier) {
    if (call->stream == earlier->stream) return true;
    return call->kind == STREAM_WAIT && earlier->kind == STREAM_RECORD &&
           call->event == earlier->event;
}

bool surely_before(const StreamCall *calls, int count, int first, int second) {
    bool after[STREAM_MOST_CALLS] = {false}; // surely after `first`
    after[first] = true;
    for (int i = first + 1; i < count; i++)
        for (int k = first; k < i; k++)
            if (after[k] && follows(&calls[i], &calls[k])) after[i] = true;
    return second > first && after[second];
}
// SOLUTION END
