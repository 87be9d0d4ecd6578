/* test_module.c: memory of chosen parameters of a tree, initial values of layers, and the outputs
 * of each model for fixed weights and images.
 */
#include "tests/rigs/check.h"

#include "common/nn/layers.h"
#include "common/nn/models.h"
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

// Two linear layers: first.weight [4, 3], first.bias, second.weight [4, 4], second.bias.
static Module *create_pair(void) {
    Module *pair = layer_sequential("Pair");
    module_add(pair, "first", layer_linear(device, 3, 4));
    module_add(pair, "second", layer_linear(device, 4, 4));
    return pair;
}

// ---- memory -------------------------------------------------------------------------------------

static void only_chosen_parameters_lose_their_memory(void **state) {
    (void)state;
    enum { RELEASED = (4 + 16) * sizeof(float) };
    Module *pair = create_pair();
    NamedTensors all = module_tensors(pair, MODULE_PARAMETERS);
    const NamedTensors chosen = {all.items + 1, 2}; // first.bias, second.weight
    const size_t bytes = device->bytes;
    for (size_t i = 0; i < 4; i++) all.items[i].tensor->has_grad = true;
    module_release_grads(pair, &chosen);
    assert_int_equal(device->bytes, bytes - RELEASED);
    for (size_t i = 0; i < 4; i++) {
        const Tensor *tensor = all.items[i].tensor;
        const bool kept = i == 0 || i == 3;
        assert_true((tensor->grad != NULL) == kept && tensor->has_grad == kept);
        assert_non_null(tensor->data);
    }
    module_own_grads(pair);
    assert_int_equal(device->bytes, bytes);
    for (size_t i = 0; i < 4; i++) {
        assert_non_null(all.items[i].tensor->grad);
        assert_true(all.items[i].tensor->has_grad == (i == 0 || i == 3)); // the new ones are None
    }
    module_release_data(pair, &chosen);
    assert_int_equal(device->bytes, bytes - RELEASED);
    for (size_t i = 0; i < 4; i++)
        assert_true((all.items[i].tensor->data != NULL) == (i == 0 || i == 3));
    named_tensors_free(&all);
    module_close(pair);
}

// ---- initial values -----------------------------------------------------------------------------

static void check_constant(Module *model, const char *name, float value) {
    NamedTensors all = module_tensors(model, MODULE_STATE);
    size_t i = 0;
    while (i < all.count && strcmp(all.items[i].name, name) != 0) i++;
    assert_true(i < all.count);
    for (size_t k = 0; k < tensor_count(all.items[i].tensor); k++)
        assert_true(tensor_f32(all.items[i].tensor)[k] == value);
    named_tensors_free(&all);
}

static void a_norm_begins_as_the_identity(void **state) {
    (void)state;
    Error err = {0};
    const ModelConfig config = {"convnet", "", {3, 8, 8}, 10, .seed = 3};
    Module *model = model_create(&config, device, &err);
    CHECK_OK(model, err);
    check_constant(model, "bn1.weight", 1);
    check_constant(model, "bn2.bias", 0);
    check_constant(model, "bn1.running_mean", 0);
    check_constant(model, "bn2.running_var", 1);
    module_close(model);
}

// A shared weight is initialized as its owner's, and changes no other parameter's values.
static void a_shared_weight_is_its_owners(void **state) {
    (void)state;
    Module *plain = layer_sequential("Pair"), *tied = layer_sequential("Pair");
    Module *const both[] = {plain, tied};
    for (int i = 0; i < 2; i++) {
        module_add(both[i], "first", layer_linear(device, 3, 3));
        module_add(both[i], "second", layer_linear(device, 3, 3));
    }
    module_tie_parameter(tied->children[1], "weight", tied->children[0], "weight");
    module_initialize(plain, 7);
    module_initialize(tied, 7);
    for (int i = 0; i < 2; i++) {
        const Tensor *weight = module_parameter(plain->children[0], 0);
        assert_memory_equal(module_parameter(tied->children[i], 0)->data, weight->data,
                            tensor_bytes(weight));
        const Tensor *bias = module_parameter(plain->children[i], 1);
        assert_memory_equal(module_parameter(tied->children[i], 1)->data, bias->data,
                            tensor_bytes(bias));
    }
    module_close(plain);
    module_close(tied);
}

// ---- models -------------------------------------------------------------------------------------

// The outputs of earlier versions, as weighted sums, for images of odd and of different sides.
// (test_parity compares models with PyTorch.)
static void models_compute_the_same_as_ever(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t height, width;
        double sum;
    } cases[] = {{"toy", 3, 5, 13.29662},      {"mlp", 3, 5, 2.498927},
                 {"convnet", 4, 7, -11.62428}, {"convnet", 9, 5, 14.90667},
                 {"resnet20", 5, 5, 12.99005}, {"resnet20", 6, 6, 7.763596},
                 {"resnet20", 7, 7, 15.27793}, {"resnet20", 9, 9, 15.18904},
                 {"segnet", 4, 12, 161.1443},  {"segnet", 8, 4, 133.5315}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        const size_t shape[] = {2, 2, cases[i].height, cases[i].width};
        const ModelConfig config = {cases[i].name, "6,5", {2, shape[2], shape[3]}, 7, .seed = 11};
        Module *model = model_create(&config, device, &err);
        CHECK_OK(model, err);
        Tape *tape = tape_create(device, NULL);
        Tensor *x = tape_tensor(tape, DTYPE_F32, 4, shape);
        for (size_t k = 0; k < tensor_count(x); k++) tensor_f32(x)[k] = (float)(k * 5 % 11) - 5;
        const Tensor *y = module_forward(model, tape, x);
        CHECK_OK(y, tape->error);
        assert_true(y->shape[0] == 2 && y->shape[1] == 7);
        double sum = 0;
        for (size_t k = 0; k < tensor_count(y); k++)
            sum += (double)tensor_f32(y)[k] * (double)(k % 7 + 1);
        check_close(sum, cases[i].sum, 1e-4, cases[i].name);
        tape_close(tape);
        module_close(model);
    }
}

int main(void) {
#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_DEVICE(only_chosen_parameters_lose_their_memory),
        WITH_DEVICE(a_norm_begins_as_the_identity),
        WITH_DEVICE(a_shared_weight_is_its_owners),
        WITH_DEVICE(models_compute_the_same_as_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
