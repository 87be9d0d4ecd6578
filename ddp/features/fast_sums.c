/* fast_sums.c: --fast-sums: the backend's own all-reduce, which adds faster and in another order.
 *
 * For several hosts with several ranks each and a slow link between them, if ranks are not numbered
 * host by host. All ranks get equal bits, and so does every run of the same command; but these bits
 * are not DataParallel's, and depend on the buckets. The run reports it.
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
