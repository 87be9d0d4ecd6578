/* images.c: writes portable pixmaps (PPM, "P6"). */
#include "common/train/images.h"

#include <string.h>

#include "common/base/file.h"
#include "common/base/memory.h"
#include "common/nn/ops.h"
#include "common/nn/tape.h"
#include "common/train/hits.h"

void images_color(int64_t label, uint8_t rgb[3]) {
    static const uint8_t colors[][3] = {{0, 0, 0},     {230, 159, 0},  {86, 180, 233},
                                        {0, 158, 115}, {240, 228, 66}, {0, 114, 178},
                                        {213, 94, 0},  {204, 121, 167}};
    static const uint8_t white[3] = {255, 255, 255};
    const size_t count = sizeof colors / sizeof *colors;
    memcpy(rgb, label < 0 ? white : colors[(size_t)label % count], 3);
}

// Writes one picture. predicted: [h, w].
static int write_sample(const char *path, const Dataset *set, size_t sample,
                        const int32_t *predicted, Error *err) {
    AtomicFile file;
    size_t height = set->shape[1], width = set->shape[2], plane = height * width;
    const uint8_t *pixels = set->bytes + sample * set->shape[0] * plane;
    const size_t stride = set->shape[0] >= 3 ? plane : 0; // of one (gray) or at least 3 channels
    if (file_begin(&file, path, err) != 0) return -1;
    fprintf(file.file, "P6\n%zu %zu\n255\n", 3 * width, height);
    for (size_t row = 0; row < height; row++)
        for (size_t column = 0; column < 3 * width; column++) {
            uint8_t rgb[3];
            // There are columns here: NOLINTNEXTLINE(clang-analyzer-core.DivideZero)
            size_t p = row * width + column % width;
            if (column < width)
                for (size_t c = 0; c < 3; c++) rgb[c] = pixels[c * stride + p];
            else if (column < 2 * width)
                images_color(set->labels[sample * plane + p], rgb);
            else
                images_color(predicted[p], rgb);
            fwrite(rgb, 1, sizeof rgb, file.file);
        }
    return file_commit(&file, err);
}

// Predicts the first `count` samples of the set. predicted: [count, h, w].
static int predict(Module *module, Tape *tape, const Dataset *set, size_t count, int32_t *predicted,
                   Error *err) {
    size_t size = dataset_sample_size(set);
    float *samples = memory_zalloc(count * size * sizeof *samples);
    for (size_t i = 0; i < count; i++) dataset_sample(set, i, NULL, 0, samples + i * size);
    bool recording = tape->recording, training = tape->training;
    tape->recording = tape->training = false;
    size_t shape[] = {count, set->shape[0], set->shape[1], set->shape[2]};
    Tensor *input = tape_input(tape, DTYPE_F32, 4, shape, samples);
    Tensor *logits = op_float32(tape, module_forward(module, tape, input));
    tape->recording = recording;
    tape->training = training;
    free(samples);
    if (tape_error(tape, err) != 0) return -1;
    hits_predict(tape, logits, predicted);
    tape_reset(tape);
    return 0;
}

int images_write(const char *folder, size_t epoch, Module *module, Tape *tape, const Dataset *set,
                 Error *err) {
    CHECK(set->dense && set->bytes, "pictures of a data set without pixels or their labels");
    size_t count = set->count < IMAGES_SAMPLES ? set->count : IMAGES_SAMPLES;
    size_t plane = dataset_label_size(set);
    int32_t *predicted = memory_zalloc(count * plane * sizeof *predicted);
    char *images = memory_format("%s/images", folder ? folder : "");
    int failed = folder ? file_make_folder(images, err) : 0;
    if (!failed) failed = predict(module, tape, set, count, predicted, err);
    for (size_t i = 0; folder && !failed && i < count; i++) {
        char *path = memory_format("%s/epoch_%04zu_sample_%02zu.ppm", images, epoch, i);
        failed = write_sample(path, set, i, predicted + i * plane, err);
        free(path);
    }
    free(images);
    free(predicted);
    return failed;
}
