/* profile_file.h: a StepProfile as a JSON file, which bench_profile writes, and bench_scale and the
 * page player.html read.
 *
 *   {"name": "mlp 512,512", "rows": [32, 64],
 *    "forward_s": [fixed, per_row], "loss_s": [fixed, per_row], "backward_s": [fixed, per_row],
 *    "optimizer_s": 0.0003, "sample_bytes": 256, "output_bytes": 40, "messages": 4,
 *    "tensors": [{"bytes": 40, "ready": 0.08, "unit": 3}, ...]}
 *
 * "unit" is ModelTensor's; a file without it has UNIT_ALONE.
 */
#ifndef BENCH_MODEL_PROFILE_FILE_H
#define BENCH_MODEL_PROFILE_FILE_H

#include "bench/model/step_model.h"
#include "common/base/error.h"

// rows: the two batches that were measured; profile holds the lines through them. Returns 0, or -1
// with err filled.
int profile_file_write(const StepProfile *profile, const size_t rows[2], const char *path,
                       Error *err);
// Returns 0 and a profile for step_profile_free, or -1 with err filled: not readable, not JSON, a
// field that is missing, negative or out of order.
int profile_file_read(StepProfile *profile, const char *path, Error *err);

#endif
