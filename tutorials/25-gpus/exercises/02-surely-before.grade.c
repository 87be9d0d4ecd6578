/* 02-surely-before.grade.c: programs of two and three streams, and their happens-before order. */
#include "tutorials/25-gpus/exercises/02-surely-before.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_25_02;

enum { COUNT = 9 };

#define KERNEL(stream) \
    { STREAM_KERNEL, (stream), 0 }
#define RECORD(stream, event) \
    { STREAM_RECORD, (stream), (event) }
#define WAIT(stream, event) \
    { STREAM_WAIT, (stream), (event) }

static void ask(Grade *grade, const StreamCall *calls, int first, int second, bool wanted,
                const char *sentence) {
    bool got = GRADE_CALL(grade, surely_before, calls, COUNT, first, second);
    GRADE_EXPECT(grade, got == wanted, "%s (calls %d and %d)", sentence, first, second);
}

static const StreamCall TWO[COUNT] = {KERNEL(0), RECORD(0, 7), KERNEL(0),    KERNEL(1), WAIT(1, 7),
                                      KERNEL(1), KERNEL(0),    RECORD(1, 8), WAIT(0, 8)};

static void one_stream(Grade *grade) {
    const char *in_order = "In one stream, every call is over before the next one begins.";
    ask(grade, TWO, 0, 2, true, in_order);
    ask(grade, TWO, 0, 6, true, in_order);
    ask(grade, TWO, 3, 5, true, in_order);
    ask(grade, TWO, 6, 2, false, "The second call was issued first, in the same stream.");
}

static void two_streams(Grade *grade) {
    const char *host = "The host issued one before the other; that says nothing of two streams.";
    ask(grade, TWO, 0, 3, false, host);
    ask(grade, TWO, 2, 3, false, host);
    ask(grade, TWO, 5, 6, false, host);
    ask(grade, TWO, 0, 5, true,
        "The event was recorded behind the first call, and the second "
        "waits for it.");
    ask(grade, TWO, 2, 5, false,
        "The event was recorded before the first call: it does not say "
        "that the call is over.");
    ask(grade, TWO, 3, 8, true,
        "The event was recorded behind the first call, and the second "
        "waits for it.");
    ask(grade, TWO, 1, 5, true,
        "The first call is the RECORD itself, and the second waits for it.");
    ask(grade, TWO, 1, 4, true, "The WAIT waits for the RECORD.");
}

static void chains(Grade *grade) {
    static const StreamCall CALLS[COUNT] = {KERNEL(0),    RECORD(0, 1), WAIT(1, 1),
                                            RECORD(1, 2), WAIT(2, 2),   KERNEL(2),
                                            RECORD(2, 3), WAIT(0, 3),   KERNEL(0)};
    const char *chain = "Stream 1 waits for stream 0, and stream 2 for stream 1: so it waits for "
                        "stream 0.";
    ask(grade, CALLS, 0, 5, true, chain);
    ask(grade, CALLS, 2, 5, true, chain);
    ask(grade, CALLS, 5, 8, true, chain);
    // A graph with 2^60 paths back from the last call, of which none reaches the first.
    StreamCall many[STREAM_MOST_CALLS] = {KERNEL(1)};
    for (int i = 1; i < STREAM_MOST_CALLS; i++) many[i] = (StreamCall)KERNEL(0);
    bool got = GRADE_CALL(grade, surely_before, many, STREAM_MOST_CALLS, 0, STREAM_MOST_CALLS - 1);
    GRADE_EXPECT(grade, !got, "%s (64 calls)",
                 "The host issued one before the other; that says nothing of two streams.");
    // Four streams that wait for each other's events in turn: each WAIT follows all earlier
    // RECORDs. A search that visits every path takes 15 seconds for each answer.
    many[0] = (StreamCall)KERNEL(4);
    for (int i = 1; i < STREAM_MOST_CALLS; i++)
        many[i] =
            i % 2 ? (StreamCall)RECORD((i + 1) / 2 % 4, 1) : (StreamCall)WAIT((i / 2 + 1) % 4, 1);
    for (int turn = 0; turn < 8; turn++) {
        got = GRADE_CALL(grade, surely_before, many, STREAM_MOST_CALLS, 0, STREAM_MOST_CALLS - 1);
        GRADE_EXPECT(grade, !got, "%s (64 calls)",
                     "No stream waits for the first call's, however often they wait for each "
                     "other.");
    }
}

static void other_events(Grade *grade) {
    static const StreamCall CALLS[COUNT] = {WAIT(1, 4),   KERNEL(1), KERNEL(0),
                                            RECORD(0, 4), KERNEL(1), RECORD(0, 5),
                                            WAIT(2, 5),   KERNEL(2), WAIT(1, 6)};
    ask(grade, CALLS, 2, 4, false, "The WAIT was issued before the RECORD: it waits for nothing.");
    ask(grade, CALLS, 2, 8, false, "A WAIT for another event, which is never recorded.");
    ask(grade, CALLS, 2, 7, true, "The event was recorded behind the first call.");
    ask(grade, CALLS, 1, 7, false, "Stream 2 waits for stream 0, and not for stream 1.");
    ask(grade, CALLS, 0, 5, false, "A RECORD waits for nothing, also not for a WAIT.");
    static const StreamCall WAITS[COUNT] = {RECORD(0, 3), WAIT(1, 3), KERNEL(1),
                                            WAIT(2, 3),   KERNEL(2),  KERNEL(0),
                                            KERNEL(0),    KERNEL(0),  KERNEL(0)};
    ask(grade, WAITS, 1, 4, false, "Two WAITs for one event do not wait for each other.");
    static const StreamCall FAR[COUNT] = {KERNEL(70000),
                                          RECORD(70000, 90000),
                                          RECORD(70000 - 64, 90000 - 64),
                                          WAIT(-5, -7),
                                          KERNEL(-5),
                                          WAIT(6, 90000),
                                          KERNEL(6),
                                          KERNEL(0),
                                          KERNEL(0)};
    ask(grade, FAR, 0, 6, true, "Streams and events are any numbers.");
    ask(grade, FAR, 0, 2, false, "Streams and events are any numbers.");
}

const Grader grader_25_02 = {"25-gpus/02-surely-before",
                             {{"one stream", 2, NULL, one_stream},
                              {"two streams", 4, "one stream", two_streams},
                              {"chains", 2, "two streams", chains},
                              {"other events", 2, "two streams", other_events}}};
