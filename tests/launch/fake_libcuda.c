/* fake_libcuda.c: a simulated CUDA driver for ddprun_gpus.sh, built as libcuda.so.1. FAKE_DRIVER is
 * the number of GPUs, "error" (999, unknown), "absent" (100, no device), "hangs" or "crashes".
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);

static int behaves(const char *how) {
    const char *text = getenv("FAKE_DRIVER");
    return text && strcmp(text, how) == 0;
}

int cuInit(unsigned flags) {
    (void)flags;
    while (behaves("hangs")) pause();
    if (behaves("crashes")) (void)raise(SIGKILL);
    return behaves("error") ? 999 : behaves("absent") ? 100 : 0;
}

int cuDeviceGetCount(int *count) {
    const char *text = getenv("FAKE_DRIVER");
    *count = text ? atoi(text) : 0;
    return 0;
}
