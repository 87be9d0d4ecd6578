/* dnn_absent.c: takes the place of dnn.c in builds without cuDNN: no convolution has a plan, so all
 * of them run by im2col. The first one says so on stderr. */
#include "common/base/memory.h"
#include "common/device/cuda/kernels.h"

struct CudaConvolutions {
    bool told;
};

CudaConvolutions *cuda_convolutions_create(CudaDevice *cuda) {
    (void)cuda;
    return memory_zalloc(sizeof(CudaConvolutions));
}

void cuda_convolutions_close(CudaConvolutions *convolutions) {
    free(convolutions);
}

void cuda_convolution_describe(char *buffer, size_t capacity) {
    snprintf(buffer, capacity, "no cuDNN");
}

const ConvolutionPlan *cuda_convolution_plan(ConvolutionPass pass, Precision precision,
                                             const Window *window) {
    (void)pass, (void)precision, (void)window;
    const CudaDevice *cuda = cuda_current();
    if (!cuda->convolutions->told)
        fprintf(stderr,
                "note: %s: this build has no cuDNN, so im2col takes over its convolutions\n",
                cuda->device->name);
    cuda->convolutions->told = true;
    return NULL;
}

void cuda_convolution_plan_describe(const ConvolutionPlan *plan, char *buffer, size_t capacity) {
    CHECK(!plan, "a plan in a build without cuDNN");
    snprintf(buffer, capacity, "im2col");
}

size_t cuda_convolution_workspace(const ConvolutionPlan *plan) {
    CHECK(!plan, "a plan in a build without cuDNN");
    return 0;
}

void cuda_convolution_run(const ConvolutionPlan *plan, const void *a, const void *b, void *out,
                          bool accumulate, void *workspace) {
    (void)a, (void)b, (void)out, (void)accumulate, (void)workspace;
    CHECK(!plan, "a plan in a build without cuDNN");
}
