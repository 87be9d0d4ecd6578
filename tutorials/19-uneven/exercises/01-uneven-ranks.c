/* 01-uneven-ranks.c: zeros until all have none. The task is in 01-uneven-ranks.h. */
#include "tutorials/19-uneven/exercises/01-uneven-ranks.h"

// SOLUTION BEGIN
int train_uneven(ProcessGroup *group, const Training *training, Error *err) {
    for (size_t batch = 0;; batch++) {
        double sums[2] = {0, 0}; // of gradients; their number
        if (batch < training->batches) {
            sums[0] = training->gradient(training->context, batch);
            sums[1] = 1;
        }
        if (pg_run(group, pg_all_reduce(sums, 2, PG_F64, PG_SUM), err) != 0) return -1;
        if (sums[1] == 0) return 0;
        training->step(training->context, sums[0] / sums[1]);
    }
}
// SOLUTION END
