/* 03-copy-out.h: from what one all-gather brings to the whole parameters of a unit.
 *
 * PyTorch's fully_shard cuts each parameter for itself, along its rows. A parameter [rows, width]
 * on W ranks is cut into chunks of c = rows / W rows, rounded up: rank r has the c rows that begin
 * with row r c, or as many of them as there are. The last ranks may have fewer, or none.
 *
 * One all-gather serves all parameters of a unit. For it each rank sends its chunks one parameter
 * after another, and every chunk takes the room of c rows: where a rank has fewer, the rest of the
 * room holds numbers that mean nothing. So what arrives is, from rank 0, 1, ...:
 *
 *     W = 2, parameters A [3, 2] and B [1, 4]; * means nothing
 *     rank 0: A00 A01 A10 A11  B00 B01 B02 B03
 *     rank 1: A20 A21  *   *    *   *   *   *
 */
#ifndef TUTORIALS_COPY_OUT_H
#define TUTORIALS_COPY_OUT_H

#include <stddef.h>

typedef struct WholeParameter {
    size_t rows, width;
    float *whole; // [rows, width], to be written
} WholeParameter;

// gathered: [W, room of all parameters].
void copy_out(const float *gathered, const WholeParameter *parameters, size_t count, size_t world);

#endif
