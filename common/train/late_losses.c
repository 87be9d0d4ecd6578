/* late_losses.c: see late_losses.h. */
#include "common/train/late_losses.h"

LateLosses late_losses_open(Device *device) {
    LateLosses losses = {.steps = 0};
    for (int i = 0; i < LATE_LOSSES; i++) losses.items[i] = readback_create(device, sizeof(float));
    return losses;
}

void late_losses_close(LateLosses *losses) {
    for (int i = 0; i < LATE_LOSSES; i++) readback_close(losses->items[i]);
}

void late_losses_add(LateLosses *losses, const float *loss) {
    readback_start(losses->items[losses->steps++ % LATE_LOSSES], loss);
}

double late_losses_get(const LateLosses *losses, int back) {
    CHECK(back < LATE_LOSSES && losses->steps > (size_t)back, "there is no loss of %d steps ago",
          back);
    const float *loss =
        readback_wait(losses->items[(losses->steps - 1 - (size_t)back) % LATE_LOSSES]);
    return (double)*loss;
}
