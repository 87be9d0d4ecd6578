/* faulty_ladder.c: bench_ladder, in which one weight of a rung is wrong at the end: the last one of
 * rung number $FAULTY_RUNG.
 */
#include <stdlib.h>

#include "bench/ladder/rungs.h"

static const Rung *faulty;

Rung *__real_rung_open(const Course *course, Ingredient ingredient, ProcessGroup *group,
                       Device *device);
Rung *__wrap_rung_open(const Course *course, Ingredient ingredient, ProcessGroup *group,
                       Device *device);
Module *__real_rung_model(const Rung *rung);
Module *__wrap_rung_model(const Rung *rung);

Rung *__wrap_rung_open(const Course *course, Ingredient ingredient, ProcessGroup *group,
                       Device *device) {
    Rung *rung = __real_rung_open(course, ingredient, group, device);
    if ((int)ingredient == atoi(getenv("FAULTY_RUNG"))) faulty = rung;
    return rung;
}

// The ladder asks for a rung's model when it compares the weights.
Module *__wrap_rung_model(const Rung *rung) {
    Module *model = __real_rung_model(rung);
    if (rung != faulty) return model;
    NamedTensors all = module_tensors(model, MODULE_PARAMETERS);
    const Tensor *last = all.items[all.count - 1].tensor;
    tensor_f32(last)[tensor_count(last) - 1] += 1;
    named_tensors_free(&all);
    faulty = NULL;
    return model;
}
