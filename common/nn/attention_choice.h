/* attention_choice.h: one choice of attention's kernels for all replicas of a model.
 *
 * A device tries its fast attention before it uses it (HalfKernels.attention_difference). Replicas
 * that chose for themselves would differ by rounding where one device's trial fails. So the devices
 * of a DataParallel, and the ranks of a group, compare their trials before the first step: the fast
 * attention computes on all of them, or the exact one on all.
 */
#ifndef COMMON_NN_ATTENTION_CHOICE_H
#define COMMON_NN_ATTENTION_CHOICE_H

#include "common/nn/module.h"

enum { ATTENTION_CHOICES = 16 }; // sizes of heads; later ones of a module are not shared

typedef struct AttentionChoice {
    size_t size;       // of heads
    double difference; // the larger of the trials in both types of 16 bits
} AttentionChoice;

typedef struct AttentionChoices {
    size_t count;
    AttentionChoice of[ATTENTION_CHOICES];
} AttentionChoices;

// Returns the trials of a device for the heads of the module, or with device NULL those of the
// devices of its parts. None where a device has one implementation.
AttentionChoices attention_choices(Module *module, Device *device);

// all[count]: the trials of each replica. Sets all[0] to the largest differences. Prints a line for
// each that is off, if `say`; `whose` is the noun for a replica ("rank").
void attention_choices_join(AttentionChoices *all, int count, const char *whose, bool say);

// Sets the choices of the same devices.
void attention_choices_set(const AttentionChoices *choices, Module *module, Device *device);

// All of that for the replicas of a module on some devices.
void attention_choose(Module *module, Device *const *devices, int count);

#endif
