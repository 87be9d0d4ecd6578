/* 02-surely-before.grade.c: small programs of two and three streams, and what is sure in them. */
#include "tutorials/19-gpus/exercises/02-surely-before.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_19_02;

enum { COUNT = 9 };

#define KERNEL(stream) \
    { STREAM_KERNEL, (stream), 0 }
#define RECORD(stream, event) \
    { STREAM_RECORD, (stream), (event) }
#define WAIT(stream, event) \
    { STREAM_WAIT, (stream), (event) }

static void ask(Grade *grade, const StreamCall *calls, int first, int second, bool wanted,
                const char *sentence) {
    bool got = STUDENT(grade, surely_before)(calls, COUNT, first, second);
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
}

static void other_events(Grade *grade) {
    static const StreamCall CALLS[COUNT] = {WAIT(1, 4),   KERNEL(1), KERNEL(0),
                                            RECORD(0, 4), KERNEL(1), RECORD(0, 5),
                                            WAIT(2, 5),   KERNEL(2), WAIT(1, 6)};
    ask(grade, CALLS, 2, 4, false, "The WAIT was issued before the RECORD: it waits for nothing.");
    ask(grade, CALLS, 2, 8, false, "A WAIT for another event, which nobody has recorded.");
    ask(grade, CALLS, 2, 7, true, "The event was recorded behind the first call.");
    ask(grade, CALLS, 1, 7, false, "Stream 2 waits for stream 0, and not for stream 1.");
}

const Grader grader_19_02 = {"19-gpus/02-surely-before",
                             {{"one stream", 2, NULL, one_stream},
                              {"two streams", 4, "one stream", two_streams},
                              {"chains", 2, "two streams", chains},
                              {"other events", 2, "two streams", other_events}}};
