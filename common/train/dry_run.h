/* dry_run.h: how much memory a run would take (--dry-run). It takes two of its steps on devices
 * that compute nothing (device/dry.c), which count by kind the bytes that they are asked for.
 */
#ifndef COMMON_TRAIN_DRY_RUN_H
#define COMMON_TRAIN_DRY_RUN_H

#include "common/train/run.h"

// Takes the steps and prints the first device's bytes on stdout, a line for each kind:
//   weights      parameters and buffers
//   gradients    of the parameters
//   optimizer    moments, a velocity
//   batch        samples and labels
//   logits       what the model puts out, once: the loss keeps as much again, and so does backward
//   activations  all else: what the forward keeps for the backward, and what both work with
// Their sum is the largest number of bytes that the device holds at any time in training.
int dry_run_print(Run *run, Error *err);

#endif
