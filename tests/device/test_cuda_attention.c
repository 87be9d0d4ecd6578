/* test_cuda_attention.c: the choice between implementations of 16-bit attention
 * (common/device/cuda/attention/choice.cu). The first use of the tensor core kernels compares them
 * with the exact kernels and disables them if they are faulty: then this test fails, although
 * results (test_kernels_halves) stay right. With the argument `other`: a GPU on which they are
 * disabled.
 */
#include "tests/rigs/check.h"

#include "common/device/cuda/kernels.h"

typedef struct Chosen {
    Device *device;
    bool sound; // tensor core kernels pass the comparison
} Chosen;

static void tensor_cores_where_they_fit(void **state) {
    const Chosen *chosen = *state;
    for (size_t size = 8; size <= 128; size += size < 32 ? 8 : 32)
        for (int p = PRECISION_BF16; p <= PRECISION_F16; p++) {
            device_kernels(chosen->device);
            bool wanted = chosen->sound && chosen->device->capability >= 80;
            if (cuda_attention_takes_mma((Precision)p, &(Attention){1, 9, 1, size}) != wanted)
                fail_msg("size %zu, precision %d", size, p);
        }
}

static void other_sizes_are_exact(void **state) {
    const Chosen *chosen = *state;
    for (size_t size = 1; size < 32; size++) {
        device_kernels(chosen->device);
        const Attention of = {1, 20, 1, size};
        if (size % 8) assert_false(cuda_attention_takes_mma(PRECISION_F16, &of));
    }
}

// A difference measured on another device replaces the own one.
static void a_set_choice_is_kept(void **state) {
    const Chosen *chosen = *state;
    const HalfKernels *kernels = device_kernels(chosen->device)->halves;
    const Attention of = {1, 20, 1, 16};
    kernels->set_attention_difference(PRECISION_F16, of.size, 2);
    assert_false(cuda_attention_takes_mma(PRECISION_F16, &of));
    kernels->set_attention_difference(PRECISION_F16, of.size, 1);
    assert_int_equal(cuda_attention_takes_mma(PRECISION_F16, &of),
                     chosen->device->capability >= 80);
}

int main(int argc, char **argv) {
    Error err = {0};
    Chosen chosen = {device_open("cuda:0", &err), argc < 2 || strcmp(argv[1], "other") != 0};
    if (!chosen.device) {
        printf("skipped: %s\n", err.message);
        return err.status;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(tensor_cores_where_they_fit, &chosen),
        cmocka_unit_test_prestate(other_sizes_are_exact, &chosen),
        cmocka_unit_test_prestate(a_set_choice_is_kept, &chosen),
    };
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(chosen.device);
    return status;
}
