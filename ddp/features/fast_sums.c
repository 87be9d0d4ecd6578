/* fast_sums.c: --fast-sums: the backend's own all-reduce, which adds faster and in another order.
 *
 * It is for several ranks on each of several hosts with a slow cable between them, where ranks are
 * not numbered host by host. All ranks still get the same bits, and so does every run of the same
 * command; but the bits are not DataParallel's, and change with the buckets. The run says so.
 */
#include "ddp/features/features.h"

static int prepare_model(Module *model, ProcessGroup *group, Error *err) {
    (void)model;
    return pg_use_fast_sums(group, err) == 0 ? 0 : error_prefix(err, "--fast-sums");
}

const DdpFeature fast_sums_feature = {
    .flag = "fast-sums",
    .help = "let MPI add gradients in an order of its own: with --backend mpi; the bits are not "
            "DataParallel's then",
    .prepare_model = prepare_model};
