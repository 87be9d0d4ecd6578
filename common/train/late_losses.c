/* late_losses.c: a ring of LATE_LOSSES readbacks. */
#include "common/train/late_losses.h"

#include "common/base/profile.h"
#include "common/nn/tape.h"

static size_t hits_bytes(const LateLosses *losses) {
    return losses->parts * hits_size(losses->set) * sizeof *losses->hits;
}

LateLosses late_losses_open(Device *device, const Dataset *set, size_t parts) {
    LateLosses losses = {.set = set, .parts = parts};
    losses.total = device_alloc(device, sizeof *losses.total);
    losses.hits = device_alloc(device, hits_bytes(&losses));
    for (int i = 0; i < LATE_LOSSES; i++) {
        losses.items[i] = readback_create(device, sizeof(float));
        losses.item_hits[i] = readback_create(device, hits_bytes(&losses));
    }
    return losses;
}

void late_losses_close(LateLosses *losses, Device *device) {
    for (int i = 0; i < LATE_LOSSES; i++) {
        readback_close(losses->items[i]);
        readback_close(losses->item_hits[i]);
    }
    device_free(device, losses->hits, hits_bytes(losses));
    device_free(device, losses->total, sizeof *losses->total);
}

void late_losses_count(const LateLosses *losses, Tape *tape, const BatchInput *input,
                       const BatchLoss *loss) {
    Phase phase = profile_enter(tape->profile, PHASE_LOSS);
    size_t slot = input->part * hits_size(losses->set);
    hits_count(tape, losses->set, loss, losses->hits + slot);
    profile_leave(tape->profile, phase);
}

static size_t slot_of(const LateLosses *losses, int back) {
    CHECK(back < LATE_LOSSES && losses->steps > (size_t)back, "there is no loss of %d steps ago",
          back);
    return (losses->steps - 1 - (size_t)back) % LATE_LOSSES;
}

void late_losses_add(LateLosses *losses, const float *loss) {
    size_t slot = losses->steps++ % LATE_LOSSES;
    readback_start(losses->items[slot], loss);
    readback_start(losses->item_hits[slot], losses->hits);
}

double late_losses_get(const LateLosses *losses, int back) {
    const float *loss = readback_wait(losses->items[slot_of(losses, back)]);
    return (double)*loss;
}

void late_losses_get_hits(const LateLosses *losses, int back, double *hits) {
    const int64_t *parts = readback_wait(losses->item_hits[slot_of(losses, back)]);
    size_t size = hits_size(losses->set);
    for (size_t i = 0; i < size; i++) hits[i] = 0;
    for (size_t i = 0; i < losses->parts * size; i++) hits[i % size] += (double)parts[i];
}
