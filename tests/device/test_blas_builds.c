/* test_blas_builds.c: builds of OpenBLAS other than the installed one: the serial build is refused,
 * and the OpenMP build gets one thread. __wrap_openblas_get_parallel simulates them.
 */
#include "common/device/cpu/kernels.h"
#include "common/device/device_backend.h"
#include "tests/rigs/check.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

static int build = -1; // 0: serial, 1: pthread, 2: OpenMP; -1: the installed one

int __real_openblas_get_parallel(void);
int __wrap_openblas_get_parallel(void);

int __wrap_openblas_get_parallel(void) {
    return build < 0 ? __real_openblas_get_parallel() : build;
}

static void the_serial_build_is_refused(void **state) {
    (void)state;
    for (build = 0; build < 3; build++) {
        Error err = {0};
        if (build > 0) {
            CHECK_OK(cpu_prepare(&err) == 0, err);
            continue;
        }
        assert_int_equal(cpu_prepare(&err), -1);
        assert_int_equal(err.status, STATUS_USAGE);
        check_message(&err, "this OpenBLAS is the serial build, whose products are wrong");
    }
    build = -1;
}

// A refused number of threads leaves one.
static void only_the_pthread_build_divides(void **state) {
    (void)state;
    for (build = 1; build < 3; build++) {
        Error err = {0};
        if (build == 2) {
            assert_int_equal(cpu_use_threads(2, &err), -1);
            assert_int_equal(err.status, STATUS_USAGE);
            check_message(&err, "this BLAS gives no product 2 threads (OpenBLAS ");
            check_message(&err, ", OpenMP, 2 threads, ");
        } else if (__real_openblas_get_parallel() == 1) {
            CHECK_OK(cpu_use_threads(2, &err) == 0, err);
            assert_int_equal(openblas_get_num_threads(), 2);
            CHECK_OK(cpu_prepare(&err) == 0, err);
        }
        assert_int_equal(openblas_get_num_threads(), 1);
    }
    build = -1;
}

// A long setting of the user's is cut to the description's 159 characters.
static void a_long_setting_is_cut(void **state) {
    (void)state;
    Error err = {0};
    char setting[400], *before = getenv("OPENBLAS_CORETYPE"),
                       *kept = before ? strdup(before) : NULL;
    memset(setting, 'x', sizeof setting - 1);
    setting[sizeof setting - 1] = '\0';
    setenv("OPENBLAS_CORETYPE", setting, 1);
    build = 2;
    assert_int_equal(cpu_use_threads(2, &err), -1);
    build = -1;
    kept ? setenv("OPENBLAS_CORETYPE", kept, 1) : unsetenv("OPENBLAS_CORETYPE");
    free(kept);
    const size_t length = strlen(err.message);
    assert_int_equal(length, strlen("this BLAS gives no product 2 threads (") + 159 + 1);
    assert_string_equal(err.message + length - 3, "xx)");
}

static void builds_have_names(void **state) {
    (void)state;
    static const char *const names[] = {", serial, ", ", pthread, ", ", OpenMP, ", ", unknown, "};
    for (build = 0; build < 4; build++) {
        char text[200];
        cpu_describe(text, sizeof text);
        assert_non_null(strstr(text, names[build]));
    }
    build = -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_serial_build_is_refused),
        cmocka_unit_test(only_the_pthread_build_divides),
        cmocka_unit_test(a_long_setting_is_cut),
        cmocka_unit_test(builds_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
