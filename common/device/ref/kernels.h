/* kernels.h: what the files of the reference backend share (nobody else includes it).
 * Formulas and argument shapes are in kernels.h. */
#ifndef COMMON_DEVICE_REF_KERNELS_H
#define COMMON_DEVICE_REF_KERNELS_H

#include "common/device/kernels.h"

// Overwrites or adds to one output element.
void ref_put(float *place, double value, bool accumulate);

size_t ref_conv2d_workspace(Precision precision, const Window *window);
void ref_conv2d(Precision precision, const Window *window, const float *x, const float *weight,
                const float *bias, float *y, void *workspace);
void ref_conv2d_input_gradient(Precision precision, const Window *window, const float *weight,
                               const float *dy, float *dx, bool accumulate, void *workspace);
void ref_conv2d_weight_gradient(Precision precision, const Window *window, const float *x,
                                const float *dy, float *dweight, bool accumulate, void *workspace);
void ref_conv2d_bias_gradient(const Window *window, const float *dy, float *dbias, bool accumulate);
void ref_shortcut(const Window *window, const float *x, float *y);
void ref_shortcut_gradient(const Window *window, const float *dy, float *dx, bool accumulate);
void ref_max_pool(const Window *window, const float *x, float *y, int32_t *chosen);
void ref_max_pool_gradient(const Window *window, const int32_t *chosen, const float *dy, float *dx,
                           bool accumulate);
void ref_avg_pool(const Window *window, const float *x, float *y);
void ref_avg_pool_gradient(const Window *window, const float *dy, float *dx, bool accumulate);
void ref_upsample2x(const float *x, float *y, size_t planes, size_t h, size_t w);
void ref_upsample2x_gradient(const float *dy, float *dx, bool accumulate, size_t planes, size_t h,
                             size_t w);
void ref_pixel_cross_entropy(const float *logits, const int64_t *target, float *probabilities,
                             float *losses, size_t n, size_t classes, size_t inner);
void ref_hard_pixels(const float *losses, const int64_t *target, float threshold, size_t least,
                     uint8_t *kept, int64_t *kept_count, float *sum, size_t count);
void ref_pixel_cross_entropy_gradient(const float *probabilities, const int64_t *target,
                                      const uint8_t *kept, const float *upstream, float *dlogits,
                                      bool accumulate, size_t n, size_t classes, size_t inner);
void ref_predict_pixels(const float *logits, int32_t *predicted, size_t n, size_t classes,
                        size_t inner);

#endif
