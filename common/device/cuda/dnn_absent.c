/* dnn_absent.c: takes the place of dnn.c in builds without cuDNN: no convolution has a plan, so all
 * of them run by im2col. */
#include "common/device/cuda/kernels.h"

CudaConvolutions *cuda_convolutions_create(CudaDevice *cuda) {
    (void)cuda;
    return NULL;
}

void cuda_convolutions_close(CudaConvolutions *convolutions) {
    (void)convolutions;
}

void cuda_convolution_describe(char *buffer, size_t capacity) {
    snprintf(buffer, capacity, "no cuDNN");
}

const ConvolutionPlan *cuda_convolution_plan(ConvolutionPass pass, Precision precision,
                                             const Window *window) {
    (void)pass, (void)precision, (void)window;
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
