/* test_metrics.c: mean IoU against its definition, metrics over uneven shares, ignored labels in
 * all positions, the loss of pixels, and the pictures.
 */
#include "common/device/device_backend.h"
#include "tests/rigs/check.h"

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/nn/models.h"
#include "common/nn/tape.h"
#include "common/train/images.h"
#include "common/train/metrics.h"
#include "tests/rigs/temp_folder.h"

// ---- mean IoU ---------------------------------------------------------------------------------

// By the definition: for each class, pixels in both sets divided by pixels in either set.
static double brute_force_mean_iou(const int64_t *truth, const int32_t *predicted, size_t count,
                                   size_t classes) {
    double total = 0, present = 0;
    for (size_t k = 0; k < classes; k++) {
        double both = 0, either = 0;
        for (size_t i = 0; i < count; i++) {
            bool is = truth[i] == (int64_t)k, said = predicted[i] == (int32_t)k;
            if (truth[i] < 0) continue;
            both += is && said;
            either += is || said;
        }
        if (either == 0) continue;
        total += both / either;
        present++;
    }
    return total / present;
}

static void mean_iou_is_intersection_over_union(void **state) {
    (void)state;
    enum { COUNT = 200, CLASSES = 6 };
    for (uint64_t round = 0; round < 50; round++) {
        int64_t truth[COUNT];
        int32_t predicted[COUNT];
        uint64_t used = 1 + round % CLASSES; // the other classes do not occur
        for (size_t i = 0; i < COUNT; i++) {
            truth[i] = (int64_t)rng_below(round, RNG_STREAM_TEST, 2 * i, used + 1) - 1;
            predicted[i] = (int32_t)rng_below(round, RNG_STREAM_TEST, 2 * i + 1, used + 1) - 1;
            if (i % 2) predicted[i] = (int32_t)truth[i];
        }
        double confusion[CLASSES * (CLASSES + 1)] = {0};
        int64_t counts[CLASSES * (CLASSES + 1)];
        kernels_ref.pixels->count_pixels((PixelLabels){truth, 1, CLASSES, COUNT}, predicted,
                                         counts);
        for (size_t i = 0; i < CLASSES * (CLASSES + 1); i++) confusion[i] = (double)counts[i];
        check_close(hits_mean_iou(confusion, CLASSES),
                    brute_force_mean_iou(truth, predicted, COUNT, CLASSES), 1e-12, "mean IoU");
    }
}

static void mean_iou_known_answers(void **state) {
    (void)state;
    // Classes 0, 1 and "none": class 0 is right in 3 of 4 pixels, class 1 in 1 of 3; once "none" is
    // predicted.
    const double confusion[] = {3, 1, 0, 1, 1, 1, /* not read: */ 99, 99, 99};
    check_close(hits_mean_iou(confusion, 2), (3.0 / 5 + 1.0 / 4) / 2, 1e-12, "mean IoU");
    const Dataset pixels = {.dense = true, .classes = 2};
    const Score score = hits_score(&pixels, confusion, 1, 0);
    check_close(score.accuracy, 4.0 / 7, 1e-12, "accuracy");
    assert_true(score.mean_iou == hits_mean_iou(confusion, 2));
    const double nothing[6] = {0}, perfect[] = {5, 0, 0, 0, 0, 0};
    assert_true(isnan(hits_mean_iou(nothing, 2)));
    check_close(hits_mean_iou(perfect, 2), 1, 1e-12, "one class alone");
}

// ---- a model, data, a tape --------------------------------------------------------------------

enum { COUNT = 13, HIGH = 8, WIDE = 12, PLANE = HIGH * WIDE };

typedef struct Rig {
    DataSource *source;
    Device *device;
    Module *model;
    Tape *tape;
    BatchInput *input;
} Rig;

// Takes the source, of which the model has the shapes.
static Rig rig_of(DataSource *source, const char *model) {
    Error err = {0};
    Rig rig = {.source = source, .device = device_open("cpu:0", &err)};
    const Dataset *set = &rig.source->train;
    ModelConfig config = {
        model, "5", {set->shape[0], set->shape[1], set->shape[2]}, set->classes, .seed = 1};
    rig.model = model_create(&config, rig.device, &err);
    CHECK_OK(rig.model, err);
    rig.tape = tape_create(rig.device, NULL);
    rig.input = batch_input_create(rig.device, set, set->count);
    return rig;
}

static Rig rig_open(const char *data, const char *model) {
    Error err = {0};
    DataSource *source = dataset_open(data, 2, &err);
    CHECK_OK(source, err);
    return rig_of(source, model);
}

static void rig_close(Rig *rig) {
    batch_input_close(rig->input);
    tape_close(rig->tape);
    module_close(rig->model);
    device_close(rig->device);
    dataset_close(rig->source);
}

// Returns samples [begin, end) of the training set as a batch; free with batch_free.
static Batch make_batch(const Dataset *set, size_t begin, size_t end) {
    size_t size = dataset_sample_size(set), label_size = dataset_label_size(set);
    Batch batch = {.count = end - begin, .global_count = end - begin, .set = set};
    batch.samples = memory_zalloc((end - begin) * size * sizeof *batch.samples + 1);
    batch.labels = memory_zalloc((end - begin) * label_size * sizeof *batch.labels + 1);
    for (size_t i = begin; i < end; i++) {
        dataset_sample(set, i, NULL, 0, batch.samples + (i - begin) * size);
        dataset_sample_labels(set, i, NULL, 0, batch.labels + (i - begin) * label_size);
    }
    return batch;
}

static void batch_free(Batch *batch) {
    free(batch->samples);
    free(batch->labels);
}

static Loss unmined(const Rig *rig) {
    const TrainConfig config = train_config_default();
    return loss_of_evaluation(&config, &rig->source->train);
}

// Runs forward and loss of the last sent batch.
static BatchLoss compute_loss(Rig *rig, const Loss *loss, Strategy *strategy) {
    BatchLoss batch;
    Error err = {0};
    CHECK_OK(batch_forward(&batch, rig->tape, rig->model, rig->input, &err) == 0, err);
    CHECK_OK(loss_forward(loss, &batch, rig->tape, rig->input, strategy, &err) == 0, err);
    return batch;
}

static void evaluate_range(Rig *rig, Metrics *metrics, size_t begin, size_t end) {
    Batch batch = make_batch(&rig->source->train, begin, end);
    const Loss loss = unmined(rig);
    tape_reset(rig->tape);
    rig->tape->recording = rig->tape->training = false;
    batch_input_send(rig->input, &batch);
    BatchLoss result = compute_loss(rig, &loss, NULL);
    metrics_add(metrics, rig->tape, &batch, &result);
    batch_free(&batch);
}

// ---- uneven shares ----------------------------------------------------------------------------

static int nothing_to_wait_for(Strategy *self, void *sum, Error *err) {
    (void)self, (void)sum, (void)err;
    return 0;
}

// A strategy whose sum adds the values of a second, simulated rank.
typedef struct Pair {
    Strategy strategy;
    const Metrics *other;
} Pair;

static void *add_other(Strategy *self, double *values, size_t count, Error *err) {
    const Pair *pair = (const Pair *)self; // the strategy is its first member
    (void)err;
    assert_int_equal(count, pair->other->sum_count);
    for (size_t i = 0; i < count; i++) values[i] += pair->other->sums[i];
    return values;
}

static void check_shares(const char *data, const char *model, size_t cut) {
    Rig rig = rig_open(data, model);
    Error err = {0};
    Metrics whole = metrics_open(&rig.source->train), first = metrics_open(&rig.source->train);
    Metrics second = metrics_open(&rig.source->train);
    Pair pair = {.strategy = {.sum_start = add_other, .sum_wait = nothing_to_wait_for},
                 .other = &second};
    evaluate_range(&rig, &whole, 0, COUNT);
    evaluate_range(&rig, &first, 0, cut / 2); // rank 0 evaluates in two batches
    evaluate_range(&rig, &first, cut / 2, cut);
    evaluate_range(&rig, &second, cut, COUNT);
    CHECK_OK(metrics_reduce(&first, &pair.strategy, &err) == 0, err);
    Evaluation a = metrics_result(&whole), b = metrics_result(&first);
    check_close(b.loss, a.loss, 1e-6, "loss");
    assert_true(a.score.accuracy > 0 && a.score.accuracy < 1);
    assert_true(b.score.accuracy == a.score.accuracy); // counts: exact
    const Dataset *set = &rig.source->train;
    assert_int_equal(isnan(a.score.mean_iou), !set->dense);
    if (set->dense) {
        double pixels = 0; // the sum over the confusion matrix
        const size_t cells = set->classes * (set->classes + 1);
        for (size_t i = 0; i < cells; i++) pixels += whole.sums[whole.sum_count - cells + i];
        assert_true(b.score.mean_iou == a.score.mean_iou && a.score.mean_iou > 0);
        assert_true(pixels > 0 && pixels == whole.sums[1]); // the loss's count
    }
    metrics_close(&whole);
    metrics_close(&first);
    metrics_close(&second);
    rig_close(&rig);
}

static void uneven_shares_give_the_metrics_of_the_whole(void **state) {
    (void)state;
    for (size_t cut = 0; cut <= COUNT; cut += 4) {
        check_shares("shapes:8x12@13", "segnet", cut);
        check_shares("synthetic:2x4x4->5@13", "mlp", cut);
    }
}

// ---- ignored pixels ---------------------------------------------------------------------------

static double gradient_size(Module *model) {
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    double size = 0;
    for (size_t i = 0; i < parameters.count; i++) {
        const Tensor *tensor = parameters.items[i].tensor;
        assert_true(tensor->has_grad);
        for (size_t j = 0; j < tensor_count(tensor); j++) size += fabs((double)tensor->grad[j]);
    }
    named_tensors_free(&parameters);
    return size;
}

static BatchLoss train_on(Rig *rig, const Batch *batch, const Loss *loss) {
    Error err = {0};
    tape_reset(rig->tape);
    module_zero_grad(rig->model);
    batch_input_send(rig->input, batch);
    BatchLoss result = compute_loss(rig, loss, NULL);
    CHECK_OK(tape_backward(rig->tape, result.loss, &err) == 0, err);
    return result;
}

static void a_batch_of_ignored_pixels_has_loss_and_gradient_0(void **state) {
    (void)state;
    Rig rig = rig_open("shapes:8x12@13", "segnet");
    Batch batch = make_batch(&rig.source->train, 0, 4);
    const Loss all = unmined(&rig);
    assert_true(gradient_size((train_on(&rig, &batch, &all), rig.model)) > 0.1);
    for (size_t i = 0; i < 4 * PLANE; i++) batch.labels[i] = LABEL_IGNORE;
    TrainConfig mining = train_config_default();
    mining.ohem_threshold = 0.3;
    mining.ohem_min = 10;
    const Loss hard = loss_of_training(&mining, &rig.source->train);
    for (int mined = 0; mined < 2; mined++) {
        BatchLoss loss = train_on(&rig, &batch, mined ? &hard : &all);
        assert_int_equal(loss.count, 0);
        assert_true(tensor_item(loss.loss) == 0.0f);
        assert_true(gradient_size(rig.model) == 0);
        Metrics metrics = metrics_open(&rig.source->train);
        metrics_add(&metrics, rig.tape, &batch, &loss);
        assert_true(isnan(metrics_result(&metrics).score.mean_iou));
        metrics_close(&metrics);
    }
    batch_free(&batch);
    rig_close(&rig);
}

// An image of ignored pixels in the batch changes neither the loss nor the count of pixels. (In
// evaluation, because batch norm would mix the images.)
static void an_ignored_image_changes_neither_loss_nor_metrics(void **state) {
    (void)state;
    Rig rig = rig_open("shapes:8x12@13", "segnet");
    rig.tape->training = false;
    Batch both = make_batch(&rig.source->train, 0, 2), one = make_batch(&rig.source->train, 0, 1);
    for (size_t i = 0; i < PLANE; i++) both.labels[PLANE + i] = LABEL_IGNORE;
    const Loss all = unmined(&rig);
    double losses[2], accuracies[2];
    size_t counts[2];
    for (int i = 0; i < 2; i++) {
        const Batch *batch = i ? &one : &both;
        BatchLoss loss = train_on(&rig, batch, &all);
        Metrics metrics = metrics_open(&rig.source->train);
        metrics_add(&metrics, rig.tape, batch, &loss);
        losses[i] = (double)tensor_item(loss.loss);
        counts[i] = loss.count;
        accuracies[i] = metrics_result(&metrics).score.accuracy;
        metrics_close(&metrics);
    }
    assert_true(losses[0] == losses[1] && losses[0] > 0);
    assert_true(accuracies[0] == accuracies[1]);
    assert_true(counts[0] == counts[1] && counts[0] < PLANE); // outlines are ignored
    batch_free(&both);
    batch_free(&one);
    rig_close(&rig);
}

// ---- sums and divisors of the loss ------------------------------------------------------------

// Computes the loss of part `part` of a batch in `parts` parts.
static BatchLoss loss_of_part(Rig *rig, const Batch *batch, const TrainConfig *config, size_t part,
                              size_t parts) {
    const Loss loss = loss_of_training(config, &rig->source->train);
    tape_reset(rig->tape);
    batch_input_send(rig->input, batch);
    batch_input_select(rig->input, part, parts);
    return compute_loss(rig, &loss, NULL);
}

// If too few pixels exceed the threshold, the hardest ones are kept: a sixteenth, or the requested
// number, divided among the parts. Without a threshold all labelled pixels count.
static void mining_keeps_at_least_its_share(void **state) {
    (void)state;
    Rig rig = rig_open("shapes:8x12@13", "segnet");
    Batch batch = make_batch(&rig.source->train, 0, 4);
    for (size_t parts = 1; parts <= 2; parts++)
        for (size_t least = 0; least <= 10; least += 10)
            for (int by = 0; by < 3; by++) {
                TrainConfig config = train_config_default();
                config.ohem_min = least;
                if (by == 1) config.ohem_threshold = 1000;
                if (by == 2) config.ohem_probability = 1e-300; // threshold: a loss of 690
                const size_t pixels = 4 * PLANE / parts;
                const BatchLoss loss = loss_of_part(&rig, &batch, &config, parts - 1, parts);
                if (by == 0)
                    assert_true(loss.count > pixels / 2 && loss.count < pixels); // no outlines
                else
                    assert_int_equal(loss.count, least ? least / parts : pixels / 16);
                assert_true(loss.divisor == (double)(loss.count * parts));
            }
    batch_free(&batch);
    rig_close(&rig);
}

// Loss of each class: -(w y log s + (1 - y) log(1 - s)); y is 1 for the true class, s the sigmoid
// of the output.
static void binary_cross_entropy_weighs_the_true_class(void **state) {
    (void)state;
    Rig rig = rig_open("synthetic:2x4x4:5@13", "mlp");
    Batch batch = make_batch(&rig.source->train, 0, 6);
    TrainConfig config = train_config_default();
    config.loss = LOSS_BCE;
    config.pos_weight = 3;
    for (size_t parts = 1; parts <= 2; parts++) {
        const size_t rows = 6 / parts, first = 6 - rows;
        const BatchLoss loss = loss_of_part(&rig, &batch, &config, parts - 1, parts);
        double sum = 0;
        for (size_t i = 0; i < rows; i++)
            for (size_t k = 0; k < 5; k++) {
                const double x = (double)tensor_f32(loss.outputs)[i * 5 + k];
                const double sigmoid = 1 / (1 + exp(-x));
                sum -= batch.labels[first + i] == (int64_t)k ? 3 * log(sigmoid) : log(1 - sigmoid);
            }
        assert_int_equal(loss.count, rows);
        assert_true(loss.divisor == 6);
        check_close((double)tensor_item(loss.loss), sum / (6 * 5), 1e-6, "loss");
    }
    batch_free(&batch);
    rig_close(&rig);
}

// ---- a mean over all ranks --------------------------------------------------------------------

static void *add_thousand(Strategy *self, double *values, size_t count, Error *err) {
    (void)self, (void)err;
    assert_int_equal(count, 1);
    values[0] += 1000; // the other ranks' kept pixels
    return values;
}

static void a_global_mean_divides_by_all_ranks_pixels(void **state) {
    (void)state;
    Rig rig = rig_open("shapes:8x12@13", "segnet");
    Batch batch = make_batch(&rig.source->train, 0, 3);
    double values[2];
    size_t count = 0;
    for (int global = 0; global < 2; global++) {
        Strategy strategy = {
            .global_mean = global, .sum_start = add_thousand, .sum_wait = nothing_to_wait_for};
        const Loss all = unmined(&rig);
        tape_reset(rig.tape);
        batch_input_send(rig.input, &batch);
        BatchLoss loss = compute_loss(&rig, &all, &strategy);
        values[global] = (double)tensor_item(loss.loss);
        count = loss.count;
        assert_true(loss.divisor == (double)(count + (global ? 1000 : 0)));
    }
    check_close(values[1] * (double)(count + 1000), values[0] * (double)count, 1e-6, "sum");
    batch_free(&batch);
    rig_close(&rig);
}

// ---- predictions ------------------------------------------------------------------------------

static void predictions_of_a_tape_without_other_work(void **state) {
    (void)state;
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    CHECK_OK(device, err);
    Tape *tape = tape_create(device, NULL);
    float values[2 * 3 * PLANE];
    int32_t predicted[2 * PLANE];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = rng_normal(5, RNG_STREAM_TEST, i);
    const size_t shape[] = {2, 3, HIGH, WIDE}, plane = (size_t)PLANE;
    hits_predict(tape, tape_input(tape, DTYPE_F32, 4, shape, values), predicted);
    for (size_t i = 0; i < 2 * plane; i++) {
        const float *of = values + i / plane * 3 * plane + i % plane;
        for (size_t k = 0; k < 3; k++)
            assert_true(of[k * plane] <= of[(size_t)predicted[i] * plane]);
    }
    assert_true(tape->scratch_bytes >= sizeof predicted);
    tape_close(tape);
    device_close(device);
}

// ---- pictures ---------------------------------------------------------------------------------

// Reads "P6\n36 8\n255\n" and the pixels.
static void read_picture(const char *path, uint8_t *pixels) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("there is no %s", path);
    char header[12];
    assert_int_equal(fread(header, 1, 12, file), 12);
    assert_memory_equal(header, "P6\n36 8\n255\n", 12);
    assert_int_equal(fread(pixels, 1, 3 * 36 * 8, file), 3 * 36 * 8);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
}

// Labels cycle through the palette of Okabe and Ito; ignored pixels are white.
static void colors_of_labels(void **state) {
    (void)state;
    static const uint8_t palette[8][3] = {{0, 0, 0},       {0xe6, 0x9f, 0},    {0x56, 0xb4, 0xe9},
                                          {0, 0x9e, 0x73}, {0xf0, 0xe4, 0x42}, {0, 0x72, 0xb2},
                                          {0xd5, 0x5e, 0}, {0xcc, 0x79, 0xa7}};
    for (int64_t label = -2; label < 18; label++) {
        uint8_t color[3];
        images_color(label, color);
        assert_memory_equal(color, label < 0 ? (const uint8_t *)"\xff\xff\xff" : palette[label % 8],
                            3);
    }
}

// Draws weights with which a picture contains several classes.
static void draw_weights(Module *model) {
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    for (size_t i = 0; i < parameters.count; i++)
        for (size_t j = 0; j < tensor_count(parameters.items[i].tensor); j++)
            tensor_f32(parameters.items[i].tensor)[j] = rng_normal(i, RNG_STREAM_TEST, j);
    named_tensors_free(&parameters);
}

static void check_pictures(Rig rig, const char *folder) {
    draw_weights(rig.model);
    const Dataset *set = &rig.source->train;
    const size_t channels = set->shape[0];
    Error err = {0};
    CHECK_OK(images_write(NULL, 3, rig.model, rig.tape, set, &err) == 0, err); // another rank
    CHECK_OK(images_write(folder, 3, rig.model, rig.tape, set, &err) == 0, err);
    assert_true(rig.tape->recording && rig.tape->training);
    Batch batch = make_batch(set, 0, IMAGES_SAMPLES);
    int32_t predicted[IMAGES_SAMPLES * PLANE];
    tape_reset(rig.tape);
    rig.tape->training = false;
    size_t shape[] = {IMAGES_SAMPLES, channels, HIGH, WIDE};
    Tensor *x = tape_input(rig.tape, DTYPE_F32, 4, shape, batch.samples);
    hits_predict(rig.tape, module_forward(rig.model, rig.tape, x), predicted);
    assert_memory_not_equal(predicted, predicted + (size_t)PLANE, PLANE * sizeof *predicted);
    for (size_t i = 0; i < IMAGES_SAMPLES; i++) {
        uint8_t pixels[3 * 36 * 8], color[3];
        char *path = memory_format("%s/images/epoch_0003_sample_%02zu.ppm", folder, i);
        read_picture(path, pixels);
        free(path);
        for (size_t p = 0; p < PLANE; p++) {
            const uint8_t *at = pixels + 3 * (p / WIDE * 3 * WIDE + p % WIDE);
            for (size_t c = 0; c < 3; c++)
                assert_int_equal(at[c], set->bytes[(i * channels + c % channels) * PLANE + p]);
            images_color(set->labels[i * PLANE + p], color);
            assert_memory_equal(at + 3 * WIDE, color, 3);
            images_color(predicted[i * PLANE + p], color);
            assert_memory_equal(at + 6 * WIDE, color, 3);
        }
    }
    batch_free(&batch);
    rig_close(&rig);
}

// With three channels, and gray.
static void pictures_show_input_truth_and_prediction(void **state) {
    Error err = {0};
    for (size_t channels = 1; channels <= 3; channels += 2) {
        DataSource *source = dataset_open("shapes:8x12@13", 2, &err);
        CHECK_OK(source, err);
        source->train.shape[0] = channels;
        check_pictures(rig_of(source, "segnet"), *state);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(colors_of_labels),
        cmocka_unit_test(mean_iou_is_intersection_over_union),
        cmocka_unit_test(mean_iou_known_answers),
        cmocka_unit_test(uneven_shares_give_the_metrics_of_the_whole),
        cmocka_unit_test(a_batch_of_ignored_pixels_has_loss_and_gradient_0),
        cmocka_unit_test(an_ignored_image_changes_neither_loss_nor_metrics),
        cmocka_unit_test(a_global_mean_divides_by_all_ranks_pixels),
        cmocka_unit_test(predictions_of_a_tape_without_other_work),
        cmocka_unit_test(mining_keeps_at_least_its_share),
        cmocka_unit_test(binary_cross_entropy_weighs_the_true_class),
        cmocka_unit_test_setup_teardown(pictures_show_input_truth_and_prediction, temp_folder_make,
                                        temp_folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
