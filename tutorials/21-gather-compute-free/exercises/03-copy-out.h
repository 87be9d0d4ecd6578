/* 03-copy-out.h: the whole parameters of a unit, from the result of one all-gather.
 *
 * PyTorch's fully_shard cuts each parameter by itself, along its rows. A parameter [rows, width] on
 * W ranks is cut into chunks of c = rows / W rows, rounded up: rank r has the c rows that begin
 * with row r c, or as many of them as there are. The last ranks may have fewer, or none.
 *
 * One all-gather is for all parameters of a unit. Each rank sends its chunks, one parameter after
 * another, and every chunk is padded to c rows: where a rank has fewer, the contents of the padding
 * are undefined. So the result has, from rank 0, 1, ...:
 *
 *     W = 2, parameters A [3, 2] and B [1, 4]; * is padding
 *     rank 0: A00 A01 A10 A11  B00 B01 B02 B03
 *     rank 1: A20 A21  *   *    *   *   *   *
 */
#ifndef TUTORIALS_COPY_OUT_H
#define TUTORIALS_COPY_OUT_H

#include <stddef.h>

typedef struct WholeParameter {
    size_t rows, width;
    float *whole; // [rows, width], written by copy_out
} WholeParameter;

// gathered: [W, padded chunks of all parameters].
void copy_out(const float *gathered, const WholeParameter *parameters, size_t count, size_t world);

#endif
