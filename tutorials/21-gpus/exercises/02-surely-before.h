/* 02-surely-before.h: is one call surely over before another one begins?
 *
 * `calls` is what the host has issued, in this order. A KERNEL does something; a RECORD marks the
 * place in its stream with an event; a WAIT keeps its stream from going on until that event has
 * happened. The rules are CUDA's:
 *
 * - in one stream, every call is over before the next one begins;
 * - a WAIT begins when the RECORD of its event, in whatever stream, is over. An event is recorded
 *   once. A WAIT that was issued before its RECORD waits for nothing;
 * - of two calls that follow from each other by several such steps, the first is surely before;
 * - nothing else is sure. That the host issued one call first means nothing.
 */
#ifndef TUTORIALS_SURELY_BEFORE_H
#define TUTORIALS_SURELY_BEFORE_H

#include <stdbool.h>

enum { STREAM_MOST_CALLS = 64 };

typedef enum StreamCallKind { STREAM_KERNEL, STREAM_RECORD, STREAM_WAIT } StreamCallKind;

typedef struct StreamCall {
    StreamCallKind kind;
    int stream, event; // event: of RECORD and WAIT. Both are any numbers
} StreamCall;

// calls [count], count <= STREAM_MOST_CALLS. first and second are places in it, and not the same.
bool surely_before(const StreamCall *calls, int count, int first, int second);

#endif
