/* test_dnn_absent.c: a build without cuDNN notes that convolutions use im2col: once per device, at
 * its first convolution. Needs no GPU: of the CUDA backend only dnn_absent.c is linked.
 */
#include "tests/rigs/check.h"

#include <unistd.h>

#include "common/device/cuda/kernels.h"

static CudaDevice *current;

CudaDevice *cuda_current(void) {
    return current;
}

static size_t count_notes(void) {
    FILE *notes = tmpfile();
    assert_non_null(notes);
    int kept = dup(STDERR_FILENO);
    assert_true(dup2(fileno(notes), STDERR_FILENO) >= 0);
    assert_null(cuda_convolution_plan(CONVOLUTION_FORWARD, PRECISION_F32, &(Window){0}));
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    rewind(notes);
    char line[256];
    size_t count = 0;
    while (fgets(line, sizeof line, notes)) count += strstr(line, "no cuDNN") != NULL;
    fclose(notes);
    return count;
}

static void im2col_is_told_once(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        Device device = {.name = "cuda:0"};
        CudaDevice cuda = {.device = &device};
        current = &cuda;
        cuda.convolutions = cuda_convolutions_create(current);
        assert_int_equal(count_notes(), 1);
        assert_int_equal(count_notes(), 0);
        cuda_convolutions_close(cuda.convolutions);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(im2col_is_told_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
