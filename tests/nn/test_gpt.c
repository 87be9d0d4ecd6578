/* test_gpt.c: a gpt's parameter names and sizes, initial weights, the gradient of the tied weight,
 * the parameters with weight decay, invalid sizes, its summary, and the modules that contain all
 * layers of a shared weight.
 */
#include "tests/rigs/check.h"

#include "common/base/rng.h"
#include "common/nn/attention_choice.h"
#include "common/nn/layers.h"
#include "common/nn/models.h"
#include "common/nn/ops.h"
#include "common/nn/optimizer.h"
#include "common/nn/summary.h"
#include "common/nn/tape.h"

enum { VOCABULARY = 11, TEXTS = 3, LENGTH = 5 };

static Device *device;

static int setup(void **state) {
    (void)state;
    Error err = {0};
    device = device_open("cpu:0", &err);
    return device ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    device_close(device); // checks that all memory was freed
    return 0;
}

static Module *create(GptSizes sizes, size_t vocabulary, uint64_t seed) {
    Error err = {0};
    ModelConfig config = {.name = "gpt", .outputs = vocabulary, .seed = seed, .gpt = sizes};
    Module *model = model_create(&config, device, &err);
    CHECK_OK(model, err);
    return model;
}

static void names_are_nanogpts(void **state) {
    (void)state;
    const char *expected[] = {"transformer.wte.weight",
                              "transformer.wpe.weight",
                              "transformer.h.0.ln_1.weight",
                              "transformer.h.0.ln_1.bias",
                              "transformer.h.0.attn.c_attn.weight",
                              "transformer.h.0.attn.c_attn.bias",
                              "transformer.h.0.attn.c_proj.weight",
                              "transformer.h.0.attn.c_proj.bias",
                              "transformer.h.0.ln_2.weight",
                              "transformer.h.0.ln_2.bias",
                              "transformer.h.0.mlp.c_fc.weight",
                              "transformer.h.0.mlp.c_fc.bias",
                              "transformer.h.0.mlp.c_proj.weight",
                              "transformer.h.0.mlp.c_proj.bias",
                              "transformer.ln_f.weight",
                              "transformer.ln_f.bias",
                              "lm_head.weight"};
    enum { NAMES = sizeof expected / sizeof *expected };
    Module *model = create((GptSizes){.layers = 1}, 76, 0);
    NamedTensors all = module_tensors(model, MODULE_STATE | MODULE_ALL_NAMES);
    assert_int_equal(all.count, NAMES);
    for (size_t i = 0; i < NAMES; i++) assert_string_equal(all.items[i].name, expected[i]);
    assert_ptr_equal(all.items[0].tensor, all.items[NAMES - 1].tensor); // tied
    named_tensors_free(&all);
    module_close(model);
    size_t count = 0;
    model = create((GptSizes){0}, 76, 0); // gpt-small
    all = module_tensors(model, MODULE_PARAMETERS);
    for (size_t i = 0; i < all.count; i++) count += tensor_count(all.items[i].tensor);
    assert_int_equal(count, 811264);
    assert_int_equal(all.count, 4 + 4 * 12);
    named_tensors_free(&all);
    module_close(model);
}

// OpenAI's and nanoGPT's sizes by name; explicit sizes override them.
static void sizes_are_the_names_unless_given(void **state) {
    (void)state;
    static const struct {
        const char *name;
        GptSizes sizes; // layers, heads, embedding, context
    } cases[] = {{"gpt", {4, 4, 128, 64}},
                 {"gpt-small", {4, 4, 128, 64}},
                 {"gpt2", {12, 12, 768, 1024}},
                 {"gpt2-medium", {24, 16, 1024, 1024}},
                 {"gpt2-large", {36, 20, 1280, 1024}},
                 {"gpt2-xl", {48, 25, 1600, 1024}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int field = -1; field < 4; field++) {
            ModelConfig config = {.name = cases[i].name};
            GptSizes wanted = cases[i].sizes;
            size_t *const asked[] = {&config.gpt.layers, &config.gpt.heads, &config.gpt.embedding,
                                     &config.gpt.context};
            size_t *const answer[] = {&wanted.layers, &wanted.heads, &wanted.embedding,
                                      &wanted.context};
            if (field >= 0) *asked[field] = *answer[field] = 7;
            const GptSizes sizes = model_gpt_sizes(&config);
            assert_memory_equal(&sizes, &wanted, sizeof sizes);
        }
    assert_true(model_is_text("gpt2") && !model_is_text("mlp") && !model_is_text("gpt3"));
}

static void check_deviation(const NamedTensor *item, double deviation) {
    size_t count = tensor_count(item->tensor);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        double w = (double)tensor_f32(item->tensor)[i];
        sum += w;
        squares += w * w;
    }
    check_close(sum / (double)count / deviation, 0, 0.05, item->name);
    check_close(sqrt(squares / (double)count) / deviation, 1, 0.02, item->name);
}

static void first_weights_are_gpt2s(void **state) {
    (void)state;
    GptSizes sizes = {.layers = 2};
    Module *model = create(sizes, 76, 3), *same = create(sizes, 76, 3),
           *other = create(sizes, 76, 4);
    NamedTensors a = module_tensors(model, MODULE_PARAMETERS);
    NamedTensors b = module_tensors(same, MODULE_PARAMETERS);
    NamedTensors c = module_tensors(other, MODULE_PARAMETERS);
    for (size_t i = 0; i < a.count; i++) {
        const Tensor *tensor = a.items[i].tensor;
        assert_memory_equal(tensor->data, b.items[i].tensor->data, tensor_bytes(tensor));
        if (tensor->ndim == 2) { // sqrt(2 layers) is 2
            check_deviation(&a.items[i], strstr(a.items[i].name, "c_proj") ? 0.01 : 0.02);
            assert_memory_not_equal(tensor->data, c.items[i].tensor->data, tensor_bytes(tensor));
        } else {
            float one = strstr(a.items[i].name, "ln_") && strstr(a.items[i].name, "weight");
            for (size_t j = 0; j < tensor_count(tensor); j++)
                assert_true(tensor_f32(tensor)[j] == one);
        }
    }
    named_tensors_free(&a);
    named_tensors_free(&b);
    named_tensors_free(&c);
    module_close(model);
    module_close(same);
    module_close(other);
}

// ---- gradients of the tied weight ---------------------------------------------------------------

static double text_loss(Module *model, Tape *tape, bool backward) {
    int64_t tokens[TEXTS * LENGTH], target[TEXTS * LENGTH];
    for (int i = 0; i < TEXTS * LENGTH; i++) {
        tokens[i] = (int64_t)rng_below(1, RNG_STREAM_TEST, (uint64_t)i, VOCABULARY);
        target[i] = (int64_t)rng_below(2, RNG_STREAM_TEST, (uint64_t)i, VOCABULARY);
    }
    Tensor *x = tape_input(tape, DTYPE_I64, 2, (size_t[]){TEXTS, LENGTH}, tokens);
    Tensor *t = tape_input(tape, DTYPE_I64, 1, (size_t[]){TEXTS * LENGTH}, target);
    Tensor *logits = module_forward(model, tape, x);
    Tensor *loss = op_cross_entropy(tape, logits, t, 1);
    Error err = {0};
    CHECK_OK(tape_error(tape, &err) == 0, err);
    assert_true(logits->shape[0] == TEXTS * LENGTH && logits->shape[1] == VOCABULARY);
    if (backward) CHECK_OK(tape_backward(tape, loss, &err) == 0, err);
    double value = (double)tensor_item(loss);
    tape_reset(tape);
    return value;
}

static void move(Tensor *tensor, float h) {
    for (size_t i = 0; i < tensor_count(tensor); i++)
        tensor_f32(tensor)[i] += h * rng_normal(9, RNG_STREAM_TEST, i);
}

typedef struct Order {
    int next, of_wte;
} Order;

static int became_ready(void *context, Tensor *tensor, Error *err) {
    (void)err;
    Order *order = context;
    if (tensor->shape[0] == VOCABULARY) order->of_wte = order->next;
    order->next++;
    return 0;
}

// Every parameter's gradient against central differences. The tied weight is one parameter, which
// is ready once, after all others: its last use in backward is the first operation of forward.
static void gradients_match_differences(void **state) {
    (void)state;
    Module *model = create((GptSizes){2, 2, 8, LENGTH + 1}, VOCABULARY, 1);
    Tape *tape = tape_create(device, NULL);
    NamedTensors list = module_tensors(model, MODULE_PARAMETERS);
    for (size_t i = 0; i < list.count; i++) move(list.items[i].tensor, 0.3f); // asymmetric
    Order order = {0};
    for (size_t i = 0; i < list.count; i++) {
        list.items[i].tensor->on_ready = became_ready;
        list.items[i].tensor->on_ready_context = &order;
    }
    text_loss(model, tape, true);
    assert_int_equal(order.next, list.count);
    assert_int_equal(order.of_wte, list.count - 1);
    for (size_t i = 0; i < list.count; i++) {
        Tensor *tensor = list.items[i].tensor;
        const float h = 2e-3f;
        double slope = 0, size = 0;
        for (size_t j = 0; j < tensor_count(tensor); j++) {
            slope += (double)tensor->grad[j] * (double)rng_normal(9, RNG_STREAM_TEST, j);
            size += fabs((double)tensor->grad[j]);
        }
        assert_true(size > 1e-6);
        move(tensor, h);
        double plus = text_loss(model, tape, false);
        move(tensor, -2 * h);
        double minus = text_loss(model, tape, false);
        move(tensor, h);
        check_close((plus - minus) / (2 * (double)h), slope, 1e-2, list.items[i].name);
    }
    named_tensors_free(&list);
    tape_close(tape);
    module_close(model);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    Error err = {0};
    ModelConfig config = {.name = "gpt", .outputs = 9, .gpt = {.heads = 3}};
    assert_null(model_create(&config, device, &err));
    assert_int_equal(err.status, STATUS_USAGE);
    check_message(&err, "an embedding of 128 does not divide among 3 heads");
}

// The largest sizes, one at a time, and one more. `heads` divides the embedding.
static void sizes_have_limits(void **state) {
    (void)state;
    static const struct {
        GptSizes sizes;
        size_t vocabulary;
    } largest[] = {{{1000, 1, 1, 1}, 1},
                   {{1, 1000, 1000, 1}, 1},
                   {{0, 1, 65536, 1}, 1},
                   {{0, 1, 1, 65536}, 1},
                   {{0, 1, 1, 1}, 65536}};
    for (int i = 0; i < 5; i++) {
        Error err = {0};
        Module *gpt = gpt_create(&largest[i].sizes, largest[i].vocabulary, device, &err);
        CHECK_OK(gpt, err);
        module_close(gpt);
        GptSizes sizes = largest[i].sizes;
        size_t *const fields[] = {&sizes.layers, &sizes.heads, &sizes.embedding, &sizes.context};
        if (i < 4) ++*fields[i];
        assert_null(gpt_create(&sizes, largest[i].vocabulary + (i == 4), device, &err));
        assert_int_equal(err.status, STATUS_USAGE);
        check_message(&err, "is too large: at most 1000, 1000, 65536, 65536, 65536");
    }
}

// Returns whether a step without a gradient has changed the parameter: only weight decay does.
static bool decays(const Tensor *tensor, float before) {
    float after;
    device_copy(NULL, &after, tensor->device, tensor->data, sizeof after);
    return after != before;
}

static void only_adamw_spares_biases_and_norms(void **state) {
    (void)state;
    for (OptimizerKind kind = OPTIMIZER_SGD; kind <= OPTIMIZER_ADAMW; kind++) {
        const OptimizerConfig config = {.kind = kind,
                                        .weight_decay = 0.1,
                                        .decay_matrices_only = true,
                                        .beta1 = 0.9,
                                        .beta2 = 0.999,
                                        .eps = 1e-8};
        Module *model = create((GptSizes){1, 2, 8, 4}, VOCABULARY, 0);
        Optimizer *optimizer = optimizer_create(model, &config);
        NamedTensors list = module_tensors(model, MODULE_PARAMETERS);
        for (size_t i = 0; i < list.count; i++) {
            Tensor *tensor = list.items[i].tensor;
            device_kernels(device)->elementwise->fill(tensor->data, 1, tensor_count(tensor));
            device_kernels(device)->elementwise->fill(tensor->grad, 0, tensor_count(tensor));
            tensor->has_grad = true;
        }
        optimizer_step(optimizer, 0.1);
        for (size_t i = 0; i < list.count; i++) {
            bool wanted = kind != OPTIMIZER_ADAMW || list.items[i].tensor->ndim > 1;
            if (decays(list.items[i].tensor, 1) != wanted)
                fail_msg("%s: %s", optimizer_name(optimizer), list.items[i].name);
        }
        named_tensors_free(&list);
        optimizer_close(optimizer);
        module_close(model);
    }
}

// Names are paths; a shared weight counts once, at its owner.
static void a_summary_has_a_line_for_each_layer(void **state) {
    (void)state;
    const char *const wanted[][4] = {
        {"name", "type", "parameters", "elements"},
        {"transformer.wte", "Embedding", "weight [11, 8]", "88"},
        {"transformer.wpe", "Embedding", "weight [4, 8]", "32"},
        {"transformer.h.0.ln_1", "LayerNorm", "weight [8], bias [8]", "16"},
        {"transformer.h.0.attn.c_attn", "Linear", "weight [24, 8], bias [24]", "216"},
        {"transformer.h.0.attn.c_proj", "Linear", "weight [8, 8], bias [8]", "72"},
        {"transformer.h.0.ln_2", "LayerNorm", "weight [8], bias [8]", "16"},
        {"transformer.h.0.mlp.c_fc", "Linear", "weight [32, 8], bias [32]", "288"},
        {"transformer.h.0.mlp.c_proj", "Linear", "weight [8, 32], bias [8]", "264"},
        {"transformer.ln_f", "LayerNorm", "weight [8], bias [8]", "16"},
        {"lm_head", "Linear", "weight shared", "0"}};
    enum { LINES = sizeof wanted / sizeof *wanted };
    Module *model = create((GptSizes){1, 2, 8, 4}, VOCABULARY, 0);
    char *text = NULL, *rest;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    assert_non_null(stream);
    summary_print(model, stream);
    fclose(stream);
    char *line = strtok_r(text, "\n", &rest), expected[160];
    for (size_t i = 0; i < LINES; i++, line = strtok_r(NULL, "\n", &rest)) {
        const char *const *cell = wanted[i];
        snprintf(expected, sizeof expected, "%-24s %-12s %-44s %12s", cell[0], cell[1], cell[2],
                 cell[3]);
        assert_non_null(line);
        assert_string_equal(line, expected);
    }
    assert_string_equal(line, "1008 parameters (4032 bytes), 0 elements in buffers");
    assert_null(strtok_r(NULL, "\n", &rest));
    free(text);
    module_close(model);
}

// module_holds_ties: the module contains every layer that uses the parameter.
static void all_ties_are_inside_or_not(void **state) {
    (void)state;
    Module *model = layer_sequential("Three"), *two = layer_sequential("Two");
    module_add(two, "a", layer_linear(device, 3, 3));
    module_add(two, "b", layer_linear(device, 3, 3));
    module_add(model, "two", two);
    module_add(model, "c", layer_linear(device, 3, 3));
    Module *c = model->children[1];
    module_tie_parameter(two->children[1], "weight", two->children[0], "weight");
    const Tensor *shared = module_parameter(two->children[0], 0);
    assert_true(module_holds_ties(two, shared));
    assert_false(module_holds_ties(two->children[0], shared));
    assert_false(module_holds_ties(two->children[1], shared));
    assert_false(module_holds_ties(c, shared));
    module_tie_parameter(c, "weight", two->children[0], "weight");
    assert_true(module_holds_ties(model, shared));
    assert_false(module_holds_ties(two, shared));
    assert_true(module_holds_ties(c, module_parameter(c, 1)));
    assert_false(module_holds_ties(two, module_parameter(c, 1)));
    module_close(model);
}

// "ref" computes in 16 bits and has one attention kernel: there is no choice.
static void a_device_with_one_attention_has_no_choice(void **state) {
    (void)state;
    Error err = {0};
    Device *ref = must_get(device_open("ref:0", &err), &err);
    const GptSizes sizes = {1, 2, 8, 4};
    Module *gpt = must_get(gpt_create(&sizes, 5, ref, &err), &err);
    assert_int_equal(attention_choices(gpt, NULL).count, 0);
    module_close(gpt);
    device_close(ref);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_with_one_attention_has_no_choice),
        cmocka_unit_test(names_are_nanogpts),
        cmocka_unit_test(sizes_are_the_names_unless_given),
        cmocka_unit_test(first_weights_are_gpt2s),
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(only_adamw_spares_biases_and_norms),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(sizes_have_limits),
        cmocka_unit_test(a_summary_has_a_line_for_each_layer),
        cmocka_unit_test(all_ties_are_inside_or_not),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
