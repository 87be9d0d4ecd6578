/* 01-cut-buckets.c: PyTorch's rule. The task is in 01-cut-buckets.h. */
#include "tutorials/12-buckets/exercises/01-cut-buckets.h"

// SOLUTION BEGIN
size_t cut_buckets(const size_t *bytes, size_t count, size_t cap, size_t *bucket_of) {
    size_t buckets = 0, held = 0; // in the bucket that is open, the last one
    for (size_t k = count; k-- > 0;) {
        if (buckets == 0 || held >= cap) {
            buckets++;
            held = 0;
        }
        bucket_of[k] = buckets - 1;
        held += bytes[k];
    }
    return buckets;
}
// SOLUTION END
