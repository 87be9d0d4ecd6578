/* test_nn.c: models' names, shapes and sizes; initialisation; optimizers without gradients;
 * schedules. */
#include "tests/rigs/check.h"

#include <stdlib.h>

#include "common/nn/clip.h"
#include "common/nn/layers.h"
#include "common/nn/models.h"
#include "common/nn/ops.h"
#include "common/nn/optimizer.h"
#include "common/nn/summary.h"
#include "common/nn/tape.h"

static Device *device;

static int setup(void **state) {
    (void)state;
    Error err = {0};
    device = device_open("cpu:0", &err);
    return device ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    device_close(device);
    return 0;
}

static Module *create(const char *name, size_t size, uint64_t seed) {
    Error err = {0};
    ModelConfig config = {name, "20,30", {3, size, size}, 10, .seed = seed};
    Module *model = model_create(&config, device, &err);
    CHECK_OK(model, err);
    return model;
}

static size_t elements(NamedTensors tensors) {
    size_t count = 0;
    for (size_t i = 0; i < tensors.count; i++) count += tensor_count(tensors.items[i].tensor);
    named_tensors_free(&tensors);
    return count;
}

static void names_are_pytorchs(void **state) {
    (void)state;
    Module *model = create("resnet20", 32, 0);
    NamedTensors tensors = module_tensors(model, MODULE_STATE);
    const char *start[] = {"conv1.weight",          "bn1.weight",         "bn1.bias",
                           "bn1.running_mean",      "bn1.running_var",    "bn1.num_batches_tracked",
                           "layer1.0.conv1.weight", "layer1.0.bn1.weight"};
    for (size_t i = 0; i < sizeof start / sizeof *start; i++)
        assert_string_equal(tensors.items[i].name, start[i]);
    assert_string_equal(tensors.items[tensors.count - 1].name, "fc.bias");
    named_tensors_free(&tensors);
    assert_int_equal(elements(module_tensors(model, MODULE_PARAMETERS)), 269722);
    module_close(model);
}

static void initial_weights_are_uniform_in_one_over_root_fan_in(void **state) {
    (void)state;
    Module *model = create("mlp", 16, 3);
    NamedTensors tensors = module_tensors(model, MODULE_PARAMETERS);
    assert_string_equal(tensors.items[0].name, "fc1.weight");
    const Tensor *weight = tensors.items[0].tensor; // [20, 768]
    size_t count = tensor_count(weight);
    double bound = 1 / sqrt(768), sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        double w = (double)tensor_f32(weight)[i];
        assert_true(fabs(w) <= bound);
        sum += w;
        squares += w * w;
    }
    check_close(sum / (double)count / bound, 0, 0.02, "mean");
    check_close(squares / (double)count / (bound * bound), 1 / 3.0, 0.01, "variance");
    Module *same = create("mlp", 16, 3), *other = create("mlp", 16, 4);
    NamedTensors same_tensors = module_tensors(same, MODULE_PARAMETERS);
    NamedTensors other_tensors = module_tensors(other, MODULE_PARAMETERS);
    for (size_t i = 0; i < tensors.count; i++) {
        size_t bytes = tensor_bytes(tensors.items[i].tensor);
        assert_memory_equal(tensors.items[i].tensor->data, same_tensors.items[i].tensor->data,
                            bytes);
        assert_memory_not_equal(tensors.items[i].tensor->data, other_tensors.items[i].tensor->data,
                                bytes);
    }
    named_tensors_free(&tensors);
    named_tensors_free(&same_tensors);
    named_tensors_free(&other_tensors);
    module_close(model);
    module_close(same);
    module_close(other);
}

static void segnet_has_a_class_for_every_pixel(void **state) {
    (void)state;
    Module *model = create("segnet", 12, 0);
    NamedTensors tensors = module_tensors(model, MODULE_STATE);
    assert_string_equal(tensors.items[0].name, "enc1.0.conv.weight");
    assert_string_equal(tensors.items[1].name, "enc1.0.bn.weight");
    assert_string_equal(tensors.items[tensors.count - 1].name, "head.bias");
    named_tensors_free(&tensors);
    Tape *tape = tape_create(device, NULL);
    Tensor *x = tape_tensor(tape, DTYPE_F32, 4, (size_t[]){2, 3, 12, 12});
    for (size_t i = 0; i < tensor_count(x); i++) tensor_f32(x)[i] = (float)(i % 7);
    Tensor *y = module_forward(model, tape, x);
    Error err = {0};
    CHECK_OK(tape_error(tape, &err) == 0, err);
    assert_true(y->ndim == 4 && y->shape[0] == 2 && y->shape[1] == 10);
    assert_true(y->shape[2] == 12 && y->shape[3] == 12);
    assert_true(model_is_dense("segnet") && !model_is_dense("convnet") && !model_is_dense("vgg"));
    tape_close(tape);
    module_close(model);
}

static void a_summary_names_each_layer(void **state) {
    (void)state;
    Module *model = layer_sequential("Pair"), *second = layer_linear(device, 3, 4);
    module_add(model, "first", layer_linear(device, 3, 4));
    Module *inner = module_add(model, "", layer_sequential("Inner"));
    module_add(inner, "second", second);
    module_add(inner, "norm", layer_batch_norm(device, 4));
    module_tie_parameter(second, "weight", model->children[0], "weight");
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    summary_print(model, stream);
    fclose(stream);
    char wanted[600];
    snprintf(wanted, sizeof wanted,
             "%-24s %-12s %-44s %12s\n%-24s %-12s %-44s %12d\n%-24s %-12s %-44s %12d\n"
             "%-24s %-12s %-44s %12d\n28 parameters (112 bytes), 9 elements in buffers\n",
             "name", "type", "parameters", "elements", "first", "Linear", "weight [4, 3], bias [4]",
             16, "second", "Linear", "weight shared, bias [4]", 4, "norm", "BatchNorm",
             "weight [4], bias [4]", 8);
    assert_string_equal(text, wanted);
    free(text);
    module_close(model);
}

// Kernel size, stride and padding that differ from each other.
static void pools_have_their_windows(void **state) {
    (void)state;
    Module *const pools[] = {layer_max_pool(3, 2, 1), layer_avg_pool(3, 2, 1)};
    Tape *tape = tape_create(device, NULL);
    Tensor *x = tape_tensor(tape, DTYPE_F32, 4, (size_t[]){1, 2, 7, 9});
    for (size_t i = 0; i < tensor_count(x); i++) tensor_f32(x)[i] = (float)(i * 5 % 11);
    const Tensor *const wanted[] = {op_max_pool(tape, x, 3, 2, 1), op_avg_pool(tape, x, 3, 2, 1)};
    for (int i = 0; i < 2; i++) {
        const Tensor *y = module_forward(pools[i], tape, x);
        CHECK_OK(y, tape->error);
        assert_true(tensor_same_shape(y, wanted[i]));
        assert_memory_equal(y->data, wanted[i]->data, tensor_bytes(y));
        module_close(pools[i]);
    }
    tape_close(tape);
}

static void a_replica_has_the_shape_and_no_memory(void **state) {
    (void)state;
    Module *model = create("convnet", 8, 0);
    size_t bytes = device->bytes;
    Module *replica = module_replica(model, device);
    assert_int_equal(device->bytes, bytes);
    NamedTensors a = module_tensors(model, MODULE_STATE), b = module_tensors(replica, MODULE_STATE);
    assert_int_equal(a.count, b.count);
    for (size_t i = 0; i < a.count; i++) {
        assert_string_equal(a.items[i].name, b.items[i].name);
        assert_true(tensor_same_shape(a.items[i].tensor, b.items[i].tensor));
        assert_null(b.items[i].tensor->data);
        assert_int_equal(a.items[i].tensor->requires_grad, b.items[i].tensor->requires_grad);
    }
    named_tensors_free(&a);
    named_tensors_free(&b);
    module_close(replica);
    module_close(model);
}

static void bad_models_get_one_line(void **state) {
    (void)state;
    const struct {
        ModelConfig config;
        const char *message;
    } cases[] = {
        {{"vgg", "", {1, 8, 8}, 10, .seed = 0}, "there is no model \"vgg\""},
        {{"mlp", "12,x", {1, 8, 8}, 10, .seed = 0}, "--hidden 12,x"},
        {{"mlp", "12,", {1, 8, 8}, 10, .seed = 0}, "--hidden 12,"},
        {{"mlp", "0", {1, 8, 8}, 10, .seed = 0}, "--hidden 0"},
        {{"mlp", "99999999999999999999", {1, 8, 8}, 10, .seed = 0}, "--hidden"},
        {{"convnet", "", {10, 3, 8}, 10, .seed = 0}, "of at least 4x4 pixels, got 3x8"},
        {{"convnet", "", {10, 8, 3}, 10, .seed = 0}, "of at least 4x4 pixels, got 8x3"},
        {{"resnet20", "", {3, 8, 16}, 10, .seed = 0}, "square images of at least 4x4, got 8x16"},
        {{"resnet20", "", {3, 3, 3}, 10, .seed = 0}, "square images of at least 4x4, got 3x3"},
        {{"mlp", NULL, {1, 8, 8}, 10, .seed = 0}, "model mlp without hidden: expected sizes"},
        {{"segnet", "", {3, 8, 18}, 4, .seed = 0}, "sides that 4 divides, got 8x18"},
        {{"segnet", "", {3, 18, 8}, 4, .seed = 0}, "sides that 4 divides, got 18x8"},
        {{"segnet", "", {3, 0, 8}, 4, .seed = 0}, "sides that 4 divides"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        assert_null(model_create(&cases[i].config, device, &err));
        assert_int_equal(err.status, STATUS_USAGE);
        check_message(&err, cases[i].message);
    }
    static const char *const smallest[] = {"mlp", "convnet", "resnet20", "segnet"};
    for (size_t i = 0; i < 4; i++) {
        Error err = {0};
        ModelConfig config = {smallest[i], "", {3, 4, 4}, 10, .seed = 0};
        Module *model = model_create(&config, device, &err);
        CHECK_OK(model, err);
        module_close(model);
    }
}

static void hidden_sizes_have_limits(void **state) {
    (void)state;
    size_t sizes[MLP_MAX_HIDDEN];
    Error err = {0};
    char text[4 * MLP_MAX_HIDDEN] = "1048576";
    for (int i = 1; i < MLP_MAX_HIDDEN; i++) strcat(text, ",2");
    assert_int_equal(model_parse_hidden(text, sizes, &err), MLP_MAX_HIDDEN);
    assert_true(sizes[0] == 1048576 && sizes[1] == 2 && sizes[MLP_MAX_HIDDEN - 1] == 2);
    strcat(text, ",2");
    assert_int_equal(model_parse_hidden(text, sizes, &err), -1);
    check_message(&err, "expected up to 32 sizes from 1 to 1048576, like 256,128");
    assert_int_equal(model_parse_hidden("1048577", sizes, &err), -1);
    assert_int_equal(model_parse_hidden("1", sizes, &err), 1);
    assert_int_equal(model_parse_hidden("", sizes, &err), 0);
}

static void gpts_have_their_sizes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        GptSizes given, sizes;
    } cases[] = {{"gpt", {0}, {4, 4, 128, 64}},
                 {"gpt-small", {0}, {4, 4, 128, 64}},
                 {"gpt2", {0}, {12, 12, 768, 1024}},
                 {"gpt2-medium", {0}, {24, 16, 1024, 1024}},
                 {"gpt2-large", {0}, {36, 20, 1280, 1024}},
                 {"gpt2-xl", {0}, {48, 25, 1600, 1024}},
                 {"gpt", {.layers = 1}, {1, 4, 128, 64}},
                 {"gpt", {.heads = 1}, {4, 1, 128, 64}},
                 {"gpt", {.embedding = 1}, {4, 4, 1, 64}},
                 {"gpt", {.context = 1}, {4, 4, 128, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ModelConfig config = {.name = cases[i].name, .gpt = cases[i].given};
        const GptSizes sizes = model_gpt_sizes(&config);
        assert_memory_equal(&sizes, &cases[i].sizes, sizeof sizes);
        assert_true(model_is_text(cases[i].name) && !model_is_dense(cases[i].name));
    }
    assert_true(!model_is_text("toy") && !model_is_text("segnet") && !model_is_text("gpt3"));
}

// ---- the mask of a linear layer's relu ----------------------------------------------------------

static bool mask_expected;

static size_t mask_bytes(Precision precision, LinearShape shape) {
    (void)precision, (void)shape;
    return 64;
}

static void check_mask(Compute how, LinearShape shape, const float *x, const float *weight,
                       const float *bias, float *y) {
    (void)how, (void)x, (void)weight, (void)bias, (void)y;
    assert_non_null(shape.relu);
    assert_true((shape.relu->bits != NULL) == mask_expected);
}

// A backend that keeps the mask in bits gets their memory if there will be a backward.
static void a_mask_is_kept_for_a_backward(void **state) {
    (void)state;
    const Kernels *const own = device->kernels;
    Kernels kernels = *own;
    MatrixKernels matrix = *own->matrix;
    matrix.relu_mask = mask_bytes;
    matrix.linear = check_mask;
    kernels.matrix = &matrix;
    Module *layer = layer_linear_relu(device, 3, 4);
    Tape *tape = tape_create(device, NULL);
    device->kernels = &kernels;
    for (int way = 0; way < 2; way++) {
        tape->recording = mask_expected = way == 0;
        Tensor *x = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){2, 3});
        CHECK_OK(module_forward(layer, tape, x), tape->error);
    }
    device->kernels = own;
    tape_close(tape);
    module_close(layer);
}

static void an_mlp_reads_images_that_are_not_square(void **state) {
    (void)state;
    Error err = {0};
    ModelConfig config = {"mlp", "", {2, 3, 5}, 7, .seed = 0};
    Module *model = model_create(&config, device, &err);
    CHECK_OK(model, err);
    assert_int_equal(elements(module_tensors(model, MODULE_PARAMETERS)), (2 * 3 * 5 + 1) * 7);
    module_close(model);
}

static void a_parameter_without_gradient_is_left_alone(void **state) {
    (void)state;
    Module *model = create("mlp", 4, 0);
    OptimizerConfig config = {.kind = OPTIMIZER_SGD, .momentum = 0.9, .weight_decay = 0.1};
    Optimizer *optimizer = optimizer_create(model, &config);
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    Tensor *first = parameters.items[0].tensor, *second = parameters.items[1].tensor;
    float before = tensor_f32(first)[0], bias = tensor_f32(second)[0];
    second->has_grad = true;
    for (size_t i = 0; i < tensor_count(second); i++) second->grad[i] = 1;
    optimizer_step(optimizer, 0.5);
    assert_true(tensor_f32(first)[0] == before);
    check_close((double)tensor_f32(second)[0], (double)bias - 0.5 * (1 + 0.1 * (double)bias), 1e-6,
                "stepped bias");
    assert_true(optimizer->steps[0] == 0 && optimizer->steps[1] == 1); // Adam's correction
    named_tensors_free(&parameters);
    optimizer_close(optimizer);
    module_close(model);
}

// Each of Adam's factors is computed in double, from the parameter's own number of steps, and
// rounded once. A learning rate that is rounded first would give other bits in some of these steps.
static void adams_factors_are_rounded_once(void **state) {
    (void)state;
    Module *model = create("mlp", 4, 0);
    OptimizerConfig config = {
        .kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};
    Optimizer *optimizer = optimizer_create(model, &config);
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    const double lr = 0.0371;
    int in_float = 0; // steps in which rounding first makes no difference
    for (int step = 1; step <= 7; step++) {
        const bool both = step % 2 == 0; // the second parameter is stepped half as often
        parameters.items[0].tensor->has_grad = true;
        parameters.items[1].tensor->has_grad = both;
        optimizer_step(optimizer, lr);
        const float *factors = optimizer->scalars, *seconds = factors + SCALARS;
        assert_true(factors[SCALAR_LR] == (float)lr);
        assert_true(factors[SCALAR_KEEP] == (float)(1 - lr * 0.01));
        assert_true(factors[SCALAR_STEP_SIZE] == (float)(lr / (1 - pow(0.9, step))));
        assert_true(factors[SCALAR_BIAS_CORRECTION] == (float)sqrt(1 - pow(0.999, step)));
        if (both) assert_true(seconds[SCALAR_STEP_SIZE] == (float)(lr / (1 - pow(0.9, step / 2))));
        in_float += factors[SCALAR_STEP_SIZE] == (float)lr / (float)(1 - pow(0.9, step));
    }
    assert_true(in_float < 7);
    named_tensors_free(&parameters);
    optimizer_close(optimizer);
    module_close(model);
}

// A stale gradient of the first parameter must not count in the norm.
static void clipping_leaves_out_parameters_without_gradient(void **state) {
    (void)state;
    Module *model = create("mlp", 4, 0);
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    size_t counted = 0;
    for (size_t i = 0; i < parameters.count; i++) {
        Tensor *tensor = parameters.items[i].tensor;
        tensor->has_grad = i % 2 == 1;
        for (size_t k = 0; k < tensor_count(tensor); k++)
            tensor->grad[k] = tensor->has_grad ? 2 : 100;
        counted += tensor->has_grad ? tensor_count(tensor) : 0;
    }
    const double norm = 2 * sqrt((double)counted), most[] = {norm * 1.01, norm / 2, norm / 2};
    const double before[] = {norm, norm, norm / 2}, after[] = {2, 1, 1};
    GradClip *clip = grad_clip_open(&parameters, NULL);
    for (int call = 0; call < 3; call++) {
        check_close(grad_clip(clip, most[call]), before[call], 1e-5 * norm, "norm");
        for (size_t i = 0; i < parameters.count; i++) {
            const Tensor *tensor = parameters.items[i].tensor;
            for (size_t k = 0; k < tensor_count(tensor); k++)
                check_close((double)tensor->grad[k], i % 2 == 1 ? after[call] : 100, 1e-5,
                            "gradient");
        }
    }
    grad_clip_close(clip);
    named_tensors_free(&parameters);
    module_close(model);
}

static void schedules_warm_up_and_end(void **state) {
    (void)state;
    Schedule s = {.kind = SCHEDULE_COSINE,
                  .lr = 2,
                  .warmup_steps = 4,
                  .total_steps = 14,
                  .step_every = 5,
                  .gamma = 0.1,
                  .power = 0.9};
    check_close(schedule_lr(&s, 0), 0.5, 1e-12, "first warm-up step");
    check_close(schedule_lr(&s, 3), 2, 1e-12, "end of warm-up");
    check_close(schedule_lr(&s, 4), 2, 1e-12, "cosine begins at lr");
    check_close(schedule_lr(&s, 9), 1, 1e-12, "cosine half-way");
    check_close(schedule_lr(&s, 14), 0, 1e-12, "cosine ends at 0");
    s.kind = SCHEDULE_POLYNOMIAL;
    check_close(schedule_lr(&s, 9), 2 * pow(0.5, 0.9), 1e-12, "polynomial half-way");
    check_close(schedule_lr(&s, 99), 0, 1e-12, "polynomial past the end");
    s.kind = SCHEDULE_STEP;
    check_close(schedule_lr(&s, 8), 2, 1e-12, "before the first drop");
    check_close(schedule_lr(&s, 9), 0.2, 1e-12, "after it");
    check_close(schedule_lr(&s, 14), 0.02, 1e-12, "after the second");
    s.step_every = 0; // default: a third of the run's 12 steps, rounded up
    s.total_steps = 12;
    check_close(schedule_lr(&s, 8), 2, 1e-12, "the fifth step after the warm-up");
    check_close(schedule_lr(&s, 9), 0.2, 1e-12, "the sixth");
    s.kind = SCHEDULE_CONSTANT;
    check_close(schedule_lr(&s, 13), 2, 1e-12, "constant");
    s.kind = SCHEDULE_COSINE; // the warm-up ends with the run; steps after the run's end
    s.total_steps = s.warmup_steps;
    check_close(schedule_lr(&s, s.warmup_steps), 2, 1e-12, "at the end of warm-up and run");
    check_close(schedule_lr(&s, s.warmup_steps + 1), 0, 1e-12, "past the end of both");
    s.kind = SCHEDULE_CONSTANT;
    s.warmup_start = 0.25; // PyTorch's LinearLR(start_factor=0.25, total_iters=4)
    check_close(schedule_lr(&s, 0), 0.5, 1e-12, "the warm-up starts here");
    check_close(schedule_lr(&s, 3), 2 * (0.25 + 0.75 * 3 / 4), 1e-12, "its last step");
    check_close(schedule_lr(&s, 4), 2, 1e-12, "after it");
    s.warmup_steps = 0;
    check_close(schedule_lr(&s, 0), 2, 1e-12, "a start of no warm-up");
}

int main(void) {
#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_DEVICE(names_are_pytorchs),
        WITH_DEVICE(initial_weights_are_uniform_in_one_over_root_fan_in),
        WITH_DEVICE(segnet_has_a_class_for_every_pixel),
        WITH_DEVICE(a_summary_names_each_layer),
        WITH_DEVICE(pools_have_their_windows),
        WITH_DEVICE(a_replica_has_the_shape_and_no_memory),
        WITH_DEVICE(bad_models_get_one_line),
        WITH_DEVICE(hidden_sizes_have_limits),
        WITH_DEVICE(gpts_have_their_sizes),
        WITH_DEVICE(a_mask_is_kept_for_a_backward),
        WITH_DEVICE(an_mlp_reads_images_that_are_not_square),
        WITH_DEVICE(a_parameter_without_gradient_is_left_alone),
        WITH_DEVICE(adams_factors_are_rounded_once),
        WITH_DEVICE(clipping_leaves_out_parameters_without_gradient),
        cmocka_unit_test(schedules_warm_up_and_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
