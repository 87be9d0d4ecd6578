/* 03-break-even.grade.c: jobs whose answer is a round number. */
#include "tutorials/28-what-it-buys/exercises/03-break-even.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_28_03;

static bool is(double got, double wanted) {
    return fabs(got - wanted) <= 1e-9 * wanted;
}

static void no_latency(Grade *grade) {
    for (int times = 1; times <= 3; times++) { // 1 s, 1 kB: 16 kbit/s
        double got = GRADE_CALL(grade, break_even_bits_per_s, 1.0 / times, 1000, 6, 0);
        double wanted = 16000.0 * times;
        if (is(got, wanted)) continue;
        GRADE_EXPECT(grade, !is(got, wanted / 8),
                     "These are bytes per second, and a network is "
                     "sold by bits: 8 times as many.");
        GRADE_EXPECT(grade, !is(got, wanted / 2),
                     "The weights go there and the gradients come back: twice the bytes.");
        GRADE_EXPECT(grade, !is(got, wanted / 16),
                     "Weights and gradients, and 8 bits to a byte: 16 times as much.");
        GRADE_EXPECT(grade, times == 1 || !is(got, 16000.0 / times),
                     "Who computes longer needs a slower network, and not a faster one.");
        grade_miss(grade, "1,000 bytes and %g s need %g bit/s, and not %g.", 1.0 / times, wanted,
                   got);
    }
    static const double MANY[] = {5000000000, 16777217};
    for (int i = 0; i < 2; i++) {
        double got = GRADE_CALL(grade, break_even_bits_per_s, 1.0, MANY[i], 6, 0);
        GRADE_EXPECT(grade, is(got, 16 * MANY[i]),
                     "%.0f bytes and 1 s need %.0f bit/s, and not %.0f: an int ends at 2^31, and a "
                     "float has seven digits.",
                     MANY[i], 16 * MANY[i], got);
    }
}

static void latency(Grade *grade) {
    // 1 s to compute; 5 messages of 0.05 s, there and back, are 0.5 s; 0.5 s are left.
    double got = GRADE_CALL(grade, break_even_bits_per_s, 1.0, 1000, 5, 0.05);
    GRADE_EXPECT(grade, !is(got, 16000), "The latency was left out.");
    GRADE_EXPECT(grade, !is(got, 16000 / 0.9),
                 "Every message has its latency, and there are 5 of them each way.");
    GRADE_EXPECT(grade, !is(got, 16000 / 0.75),
                 "The messages pay their latency there and back, and here it is paid once.");
    GRADE_EXPECT(grade, !is(got, 16000 / 1.5),
                 "Latency takes away from the time that is left; it does not add to it.");
    GRADE_EXPECT(grade, is(got, 32000), "5 messages of 0.05 s: it is 32,000 bit/s, and not %g.",
                 got);
}

static void hopeless(Grade *grade) {
    double got = GRADE_CALL(grade, break_even_bits_per_s, 1.0, 1000, 20, 0.05);
    GRADE_EXPECT(grade, !(got < 0),
                 "A negative bandwidth: the latency alone takes longer than the saved time.");
    GRADE_EXPECT(grade, isinf(got),
                 "40 messages of 0.05 s take 2 s, and only 1 s can be gained: "
                 "no network is fast enough.");
    got = GRADE_CALL(grade, break_even_bits_per_s, 1.0, 1000, 10, 0.05);
    GRADE_EXPECT(grade, isinf(got) && got > 0,
                 "Nothing is left for the bytes: no network is fast enough.");
}

const Grader grader_28_03 = {"28-what-it-buys/03-break-even",
                             {{"bytes", 4, NULL, no_latency},
                              {"latency", 3, "bytes", latency},
                              {"no network is fast enough", 3, "latency", hopeless}}};
