/* attention_choice.c: finds the attentions of a module, tries their sizes, and joins the trials. */
#include "common/nn/attention_choice.h"

#include <math.h>

#include "common/base/memory.h"
#include "common/nn/gpt.h"

typedef void (*Visit)(void *context, size_t size, Device *device);

// Whether the device has a fast attention beside the exact one: GPUs do, "ref" has the exact one.
static bool has_two(const Device *device) {
    const HalfKernels *halves = device_is_dry(device) ? NULL : device_kernels(device)->halves;
    return halves && halves->attention_difference;
}

// Calls visit for each attention in the tree whose device has two.
static void for_each_attention(Module *module, Device *device, Visit visit, void *context) {
    Device *own;
    size_t size = gpt_attention_size(module, &own);
    if (device) own = device;
    if (size > 0 && has_two(own)) visit(context, size, own);
    for (int i = 0; i < module->child_count; i++)
        for_each_attention(module->children[i], device, visit, context);
}

static AttentionChoice *choice_of(AttentionChoices *choices, size_t size) {
    for (size_t i = 0; i < choices->count; i++)
        if (choices->of[i].size == size) return &choices->of[i];
    if (choices->count == ATTENTION_CHOICES) return NULL;
    AttentionChoice *choice = &choices->of[choices->count++];
    *choice = (AttentionChoice){.size = size};
    return choice;
}

static void try_size(void *context, size_t size, Device *device) {
    AttentionChoice *choice = choice_of(context, size);
    for (Precision p = PRECISION_BF16; choice && p <= PRECISION_F16; p++)
        choice->difference =
            fmax(choice->difference, device_kernels(device)->halves->attention_difference(p, size));
}

AttentionChoices attention_choices(Module *module, Device *device) {
    AttentionChoices choices = {0};
    for_each_attention(module, device, try_size, &choices);
    return choices;
}

static void say_off(const AttentionChoice *off, const char *whose, int number, int count) {
    fprintf(stderr,
            "note: attention on tensor cores is off for heads of %zu: that of %s %d is %.1e times "
            "what rounding explains from the exact kernels, which take over on all %d\n",
            off->size, whose, number, off->difference, count);
}

void attention_choices_join(AttentionChoices *all, int count, const char *whose, bool say) {
    for (size_t i = 0; i < all->count; i++) {
        int worst = 0;
        bool some = false; // has a fast attention
        for (int r = 0; r < count; r++) {
            some = some || isfinite(all[r].of[i].difference);
            if (all[r].of[i].difference > all[worst].of[i].difference) worst = r;
        }
        const AttentionChoice joined = all[worst].of[i];
        if (joined.difference > 1 && some && say) say_off(&joined, whose, worst, count);
        all->of[i] = joined;
    }
}

static void set_size(void *context, size_t size, Device *device) {
    const AttentionChoice *choice = choice_of(context, size);
    for (Precision p = PRECISION_BF16; choice && p <= PRECISION_F16; p++)
        device_kernels(device)->halves->set_attention_difference(p, size,
                                                                 (float)choice->difference);
}

void attention_choices_set(const AttentionChoices *choices, Module *module, Device *device) {
    AttentionChoices copy = *choices;
    for_each_attention(module, device, set_size, &copy);
}

void attention_choose(Module *module, Device *const *devices, int count) {
    AttentionChoices *all = memory_zalloc((size_t)count * sizeof *all);
    for (int i = 0; i < count; i++) all[i] = attention_choices(module, devices[i]);
    attention_choices_join(all, count, "device", true);
    for (int i = 0; i < count; i++) attention_choices_set(all, module, devices[i]);
    free(all);
}
