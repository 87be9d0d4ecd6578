/* 02-surely-before.h: does one call surely complete before another one begins (happens-before)?
 *
 * `calls` are the host's calls, in the order of issue. A KERNEL computes; a RECORD records an event
 * at its position in its stream; a WAIT blocks its stream until that event has happened. The rules
 * are CUDA's:
 *
 * - in one stream, every call completes before the next one begins;
 * - a WAIT begins when the RECORD of its event, in any stream, has completed. An event is recorded
 *   once. A WAIT that was issued before its RECORD does not block;
 * - the relation is transitive: if a is before b and b before c, then a is before c;
 * - no other order is sure. The order in which the host issued two calls implies nothing.
 */
#ifndef TUTORIALS_SURELY_BEFORE_H
#define TUTORIALS_SURELY_BEFORE_H

#include <stdbool.h>

enum { STREAM_MOST_CALLS = 64 };

typedef enum StreamCallKind { STREAM_KERNEL, STREAM_RECORD, STREAM_WAIT } StreamCallKind;

typedef struct StreamCall {
    StreamCallKind kind;
    int stream, event; // event: of RECORD and WAIT. Both are arbitrary numbers
} StreamCall;

// calls [count], count <= STREAM_MOST_CALLS. first and second are different indices of it.
bool surely_before(const StreamCall *calls, int count, int first, int second);

#endif
