/* dry_run.h: a run's memory by kind (--dry-run), counted in two steps on devices that allocate and
 * compute nothing (device/dry.c).
 */
#ifndef COMMON_TRAIN_DRY_RUN_H
#define COMMON_TRAIN_DRY_RUN_H

#include "common/train/run.h"

// The main process prints the first device's bytes on stdout, a line for each kind:
//   weights      parameters and buffers
//   gradients    of the parameters
//   optimizer    moments or velocity
//   batch        samples and labels
//   logits       the model's outputs, counted once: the loss and backward each keep as many again
//   activations  all other: saved by forward for backward, and scratch of both
// Their sum is the peak of the device's memory in training.
void dry_run_print(Run *run);

#endif
