/* 03-threads-per-rank.grade.c: sums over all ranks, for every small machine. */
#include "tutorials/07-processes/exercises/03-threads-per-rank.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_07_03;

static int share(Grade *grade, int cores, int ranks, int rank) {
    return GRADE_CALL(grade, threads_per_rank, cores, ranks, rank);
}

static void alone(Grade *grade) {
    int got = share(grade, 8, 1, 0);
    GRADE_EXPECT(grade, got == 8, "One rank on 8 cores may have all 8, not %d.", got);
}

static void even(Grade *grade) {
    int got = share(grade, 8, 4, 0);
    GRADE_EXPECT(grade, got != 8,
                 "Every rank takes all cores: together they have more threads than there are "
                 "cores. (4 ranks, 8 cores: 32 threads)");
    for (int rank = 0; rank < 4; rank++)
        GRADE_EXPECT(grade, share(grade, 8, 4, rank) == 2,
                     "4 ranks on 8 cores have 2 threads each; rank %d got %d.", rank,
                     share(grade, 8, 4, rank));
}

static void uneven(Grade *grade) {
    for (int cores = 1; cores <= 17; cores++)
        for (int ranks = 1; ranks <= cores; ranks++) {
            int sum = 0, most = 0, least = cores, before = cores;
            bool falls = true; // no rank has more than the rank before it
            for (int rank = 0; rank < ranks; rank++) {
                int got = share(grade, cores, ranks, rank);
                sum += got;
                if (got > most) most = got;
                if (got < least) least = got;
                falls = falls && got <= before;
                before = got;
            }
            GRADE_EXPECT(grade, sum <= cores,
                         "Every rank rounds up: together they have more threads than there are "
                         "cores. (%d cores, %d ranks: %d threads)",
                         cores, ranks, sum);
            GRADE_EXPECT(grade, sum == cores,
                         "Some cores stay idle: cores / local_ranks rounds down. "
                         "(%d cores, %d ranks: %d threads)",
                         cores, ranks, sum);
            GRADE_EXPECT(grade, most - least <= 1,
                         "One rank got all remaining cores; the shares may differ by one at most. "
                         "(%d cores, %d ranks: from %d to %d)",
                         cores, ranks, least, most);
            GRADE_EXPECT(grade, falls,
                         "The remaining cores go to the first ranks. (%d cores, %d ranks)", cores,
                         ranks);
        }
}

static void many_ranks(Grade *grade) {
    for (int rank = 0; rank < 5; rank++) {
        int got = share(grade, 2, 5, rank);
        GRADE_EXPECT(grade, got > 0,
                     "A rank got no thread at all: with more ranks than cores each still needs "
                     "one.");
        GRADE_EXPECT(grade, got == 1, "5 ranks on 2 cores have one thread each, not %d.", got);
    }
}

const Grader grader_07_03 = {
    "07-processes/03-threads-per-rank",
    {{"a rank alone", 2, NULL, alone},
     {"cores that divide evenly", 2, "a rank alone", even},
     {"cores that do not", 3, "cores that divide evenly", uneven},
     {"more ranks than cores", 3, "cores that divide evenly", many_ranks}}};
