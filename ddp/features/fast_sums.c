/* fast_sums.c: --fast-sums: the backend's own all-reduce, which adds faster and in another order.
 *
 * It is for several ranks on each of several hosts with a slow cable between them, where ranks are
 * not numbered host by host. All ranks still get the same bits, and so does every run of the same
 * command; but the bits are not DataParallel's, and change with the buckets. The run says so.
 */
#include "ddp/features/features.h"

typedef struct FastSums {
    bool on;
} FastSums;

static void add_options(Options *options, void *settings) {
    FastSums *fast = settings;
    options_add_flag(options, "fast-sums", &fast->on,
                     "let MPI add gradients in an order of its own: with --backend mpi; the bits "
                     "are not DataParallel's then");
}

static int prepare_model(const void *settings, Module *model, ProcessGroup *group, Error *err) {
    const FastSums *fast = settings;
    (void)model;
    if (!fast->on || pg_use_fast_sums(group, err) == 0) return 0;
    return error_prefix(err, "--fast-sums");
}

const DdpFeature fast_sums_feature = {
    .settings_bytes = sizeof(FastSums), .add_options = add_options, .prepare_model = prepare_model};
