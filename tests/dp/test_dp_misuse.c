/* test_dp_misuse.c: callers' mistakes that end the process by a CHECK, and the nearest valid calls.
 */
#include "tests/rigs/data_parallel_rig.h"
#include "tests/rigs/failed_check.h"
#include "tests/rigs/sanitizers.h"

#include "dp/dp_options.h"

static Tensor *return_nothing(Module *self, Tape *tape, Tensor *x) {
    (void)self, (void)tape, (void)x;
    return NULL;
}

static Module *build_nothing(Device *device) {
    (void)device;
    return module_create("Nothing", return_nothing);
}

static void use_a_module_without_output(void *context) {
    (void)context;
    Rig rig = rig_open(build_nothing, 2);
    module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 4));
}

static void use_a_tape_of_the_second_device(void *context) {
    (void)context;
    Rig rig = rig_open(build_mlp, 2);
    Tape *tape = tape_create(rig.devices[1], NULL);
    module_forward(rig.wrapper, tape, rig_batch(&rig, tape, 4));
}

static void use_a_missing_device(void *context) {
    (void)context;
    Rig rig = rig_open(build_mlp, 2);
    Error err = {0};
    (void)data_parallel(rig.model, (Device *[]){rig.devices[0], NULL}, 2, &err);
}

static void set_the_dimension_of_a_plain_model(void *context) {
    (void)context;
    Rig rig = rig_open(build_mlp, 2);
    data_parallel_set_dim(rig.model, 0);
}

static void set_dimension(void *context) {
    Rig rig = rig_open(build_mlp, 2);
    data_parallel_set_dim(rig.wrapper, *(int *)context);
    rig_close(&rig);
}

static void use_too_many_devices(void *context) {
    int ids[DP_MAX_DEVICES + 1];
    (void)dp_options_ids(*(int *)context, NULL, ids, NULL);
}

static void mistakes_end_the_process(void **state) {
    (void)state;
    int below = -1, first = 0, last = TENSOR_MAX_DIMS - 1, above = TENSOR_MAX_DIMS;
    int most = DP_MAX_DEVICES, more = DP_MAX_DEVICES + 1;
    expect_failed_check(use_a_module_without_output, NULL, "a Nothing returned nothing");
    expect_failed_check(use_a_tape_of_the_second_device, NULL,
                        "the tape is on cpu:1, the first device is cpu:0");
    expect_failed_check(use_a_missing_device, NULL, "data_parallel: devices[1] is NULL");
    expect_failed_check(set_the_dimension_of_a_plain_model, NULL, "is no DataParallel");
    expect_failed_check(set_dimension, &below, "dimension -1");
    expect_failed_check(set_dimension, &above, "dimension ");
    expect_failed_check(use_too_many_devices, &more, "--devices 65");
    set_dimension(&first);
    set_dimension(&last);
    use_too_many_devices(&most);
}

int main(void) {
    if (UNDER_TSAN) return 77; // children with threads
    const struct CMUnitTest tests[] = {cmocka_unit_test(mistakes_end_the_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
