/* 03-undo-padding.c: turn by turn, and no further than the rows. The task is in 03-undo-padding.h.
 */
#include "tutorials/16-metrics/exercises/03-undo-padding.h"

// SOLUTION BEGIN
void undo_padding(const int *gathered, size_t world, size_t per_rank, size_t rows, int *answers) {
    for (size_t row = 0; row < rows; row++)
        answers[row] = gathered[row % world * per_rank + row / world];
}
// SOLUTION END
