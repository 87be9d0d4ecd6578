/* bits.c: see bits.h.
 *
 * DataParallel and DistributedDataParallel both take sums in device order. They have the same bits
 * if every device works on the same rows, and if the division of each rank's loss rounds nothing
 * away that DataParallel's division keeps.
 */
#include "common/train/bits.h"

#include "common/base/format.h"

enum { TEXT_MAX = 512 };

static void add(char text[TEXT_MAX], const char *reason) {
    format_append(text, TEXT_MAX, "%s%s", *text ? "; " : "", reason);
}

// Whether the mean of the ranks' means is the mean of the global batch, in all bits: dividing by a
// power of two rounds nothing.
static bool averages_are_exact(const Run *run) {
    const Sampler *sampler = run->strategy->sampler;
    size_t devices = (size_t)run->strategy->devices;
    if (run->data->train.dense || (devices & (devices - 1)) != 0) return false;
    for (size_t i = 0; i < sampler->batch_count; i++)
        if (sampler->global[i] % devices != 0) return false;
    return true;
}

// Adds the reasons that no option of DistributedDataParallel removes.
static void add_obstacles(const Run *run, char text[TEXT_MAX]) {
    if (!device_is_cpu(run->strategy->device)) add(text, "GPUs add in another order");
    if (run->config->accumulate_steps > 1) add(text, "--accumulate-steps adds up parts");
    if (run->config->threads > 1) add(text, "--threads may round otherwise than one does");
    if (run->config->ohem_threshold > 0) add(text, "each rank mines its own pixels");
}

static void announce_dp(Run *run) {
    char obstacles[TEXT_MAX] = "";
    add_obstacles(run, obstacles);
    if (obstacles[0])
        log_say(&run->record.log, "bits: not promised against DistributedDataParallel (%s)",
                obstacles);
    else
        log_say(&run->record.log,
                "bits: equal to DistributedDataParallel's on %d ranks with --sampler blocked%s",
                run->strategy->devices, averages_are_exact(run) ? "" : " --normalize global");
}

static void announce_ddp(Run *run) {
    char obstacles[TEXT_MAX] = "";
    if (run->strategy->other_bits) add(obstacles, run->strategy->other_bits);
    if (!run->strategy->global_mean && !averages_are_exact(run))
        add(obstacles, "a mean of means: --normalize global");
    add_obstacles(run, obstacles);
    if (obstacles[0])
        log_say(&run->record.log, "bits: not promised against DataParallel (%s)", obstacles);
    else
        log_say(&run->record.log, "bits: equal to DataParallel's on %d devices",
                run->strategy->devices);
}

void bits_announce(Run *run) {
    if (run->strategy->devices == 1 || run->config->evaluate) return;
    if (strategy_processes(run->strategy) == 1)
        announce_dp(run);
    else
        announce_ddp(run);
}
