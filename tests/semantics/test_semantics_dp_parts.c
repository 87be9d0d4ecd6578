/* test_semantics_dp_parts.c: rows of tests/semantics.md about DataParallel's operations scatter,
 * gather and parallel_apply, each called without the wrapper.
 */
#include "dp/operations.h"
#include "tests/rigs/data_parallel_rig.h"

enum { DEVICES = 3 };

typedef struct Bench {
    Rig rig; // only its devices and its tape are used
    Replica replicas[DEVICES];
    ReplicaShards *shards;
} Bench;

static void bench_open(Bench *bench, int dim) {
    *bench = (Bench){.rig = rig_open(build_mlp, DEVICES)};
    for (int i = 0; i < DEVICES; i++) bench->replicas[i].device = bench->rig.devices[i];
    bench->shards = shards_create(bench->rig.tape, bench->replicas, DEVICES, NULL, 0);
    bench->shards->dim = dim;
}

// A tensor [2, 3, 4] with `rows` rows along `dim`, whose elements are their indices; returns rows
// [begin, end) of it.
static Tensor *cube(Tape *tape, int dim, size_t rows, size_t begin, size_t end) {
    size_t whole[] = {2, 3, 4}, shape[] = {2, 3, 4}, i = 0;
    whole[dim] = rows;
    shape[dim] = end - begin;
    Tensor *x = tape_tensor(tape, DTYPE_F32, 3, shape);
    for (size_t a = 0; a < shape[0]; a++)
        for (size_t b = 0; b < shape[1]; b++)
            for (size_t c = 0; c < shape[2]; c++) {
                size_t at[] = {a, b, c};
                at[dim] += begin;
                tensor_f32(x)[i++] = (float)((at[0] * whole[1] + at[1]) * whole[2] + at[2]);
            }
    return x;
}

static void row_13_scatter(void **state) {
    (void)state;
    for (int dim = 0; dim < 3; dim++)
        for (size_t rows = 0; rows <= 8; rows++) {
            Bench bench;
            bench_open(&bench, dim);
            Tape *tape = bench.rig.tape;
            Tensor *x = cube(tape, dim, rows, 0, rows);
            x->requires_grad = true;
            Tensor *token = dp_scatter(tape, x, bench.shards);
            size_t chunk = (rows + DEVICES - 1) / DEVICES;
            int used = rows == 0 ? DEVICES : (int)((rows + chunk - 1) / chunk);
            assert_int_equal(bench.shards->count, used);
            for (int i = 0; i < used; i++) {
                size_t begin = (size_t)i * chunk, end = begin + chunk < rows ? begin + chunk : rows;
                Tensor *part = bench.shards->items[i].x;
                Tensor *want = cube(tape, dim, rows, begin, end);
                assert_ptr_equal(part->device, bench.rig.devices[i]);
                assert_true(tensor_same_shape(part, want));
                assert_memory_equal(part->data, want->data, tensor_bytes(want));
                float *grad = tape_make_grad(bench.shards->items[i].tape, part);
                for (size_t k = 0; k < tensor_count(want); k++)
                    grad[k] = 2 * tensor_f32(want)[k] + 1;
            }
            Error err = {0};
            tape_make_grad(tape, token);
            assert_int_equal(tape_backward(tape, token, &err), 0);
            for (size_t k = 0; k < tensor_count(x); k++)
                assert_true(x->grad[k] == 2 * (float)k + 1);
            rig_close(&bench.rig);
        }
}

// Gathers shards of 3, 1 and 2 rows.
static void gather_cubes(int dim) {
    static const size_t ENDS[] = {0, 3, 4, 6};
    Bench bench;
    bench_open(&bench, dim);
    Tape *tape = bench.rig.tape;
    bench.shards->count = DEVICES;
    for (int i = 0; i < DEVICES; i++) {
        ReplicaShard *shard = &bench.shards->items[i];
        shard->y = cube(shard->tape, dim, 6, ENDS[i], ENDS[i + 1]);
        shard->y->requires_grad = true;
    }
    Tensor *token = shards_token(tape), *want = cube(tape, dim, 6, 0, 6);
    token->requires_grad = true;
    Tensor *y = dp_gather(tape, token, bench.shards);
    assert_ptr_equal(y->device, bench.rig.devices[0]);
    assert_near_tensor("the joined cube", y, want);
    Error err = {0};
    float *grad = tape_make_grad(tape, y);
    for (size_t k = 0; k < tensor_count(y); k++) grad[k] = (float)k;
    assert_int_equal(tape_backward(tape, y, &err), 0);
    for (int i = 0; i < DEVICES; i++) {
        const Tensor *part = bench.shards->items[i].y;
        assert_memory_equal(part->grad, part->data, tensor_bytes(part));
    }
    rig_close(&bench.rig);
}

static void gather_scalars(void) {
    Bench bench;
    bench_open(&bench, 0);
    Tape *tape = bench.rig.tape;
    bench.shards->count = 2; // two of three replicas ran
    for (int i = 0; i < 2; i++) {
        ReplicaShard *shard = &bench.shards->items[i];
        shard->y = tape_tensor(shard->tape, DTYPE_F32, 0, NULL);
        shard->y->requires_grad = true;
        tensor_f32(shard->y)[0] = (float)(i + 7);
    }
    Tensor *token = shards_token(tape);
    token->requires_grad = true;
    Tensor *y = dp_gather(tape, token, bench.shards);
    assert_int_equal(y->ndim, 1);
    assert_int_equal(y->shape[0], 2);
    assert_memory_equal(y->data, ((float[]){7, 8}), sizeof(float[2]));
    Error err = {0};
    memcpy(tape_make_grad(tape, y), (float[]){3, 4}, sizeof(float[2]));
    assert_int_equal(tape_backward(tape, y, &err), 0);
    for (int i = 0; i < 2; i++) assert_true(bench.shards->items[i].y->grad[0] == (float)(i + 3));
    bench.shards->dim = 1;
    assert_null(dp_gather(tape, token, bench.shards));
    assert_error(tape, "gather on cpu:0: an output [] has no dimension 1 to join along");
    rig_close(&bench.rig);
}

static void row_14_gather(void **state) {
    (void)state;
    for (int dim = 0; dim < 3; dim++) gather_cubes(dim);
    gather_scalars();
}

// Each device has another module and another input.
static void row_16_parallel_apply(void **state) {
    (void)state;
    Bench bench;
    bench_open(&bench, 0);
    Tape *tape = bench.rig.tape;
    bench.shards->count = DEVICES;
    for (int i = 0; i < DEVICES; i++) {
        ReplicaShard *shard = &bench.shards->items[i];
        bench.replicas[i].module = layer_linear(bench.rig.devices[i], 1, 1);
        tensor_f32(module_parameter(bench.replicas[i].module, 0))[0] = (float)(i + 2);
        shard->x = rig_numbers(shard->tape, 1, 1, 0);
        tensor_f32(shard->x)[0] = 10;
    }
    // After a failed scatter or replicate parallel_apply runs no replica.
    assert_null(dp_parallel_apply(tape, NULL, shards_token(tape), bench.shards));
    assert_null(dp_parallel_apply(tape, shards_token(tape), NULL, bench.shards));
    for (int i = 0; i < DEVICES; i++) assert_null(bench.shards->items[i].y);
    assert_non_null(dp_parallel_apply(tape, shards_token(tape), shards_token(tape), bench.shards));
    for (int i = 0; i < DEVICES; i++) {
        const Tensor *y = bench.shards->items[i].y;
        assert_ptr_equal(y->device, bench.rig.devices[i]);
        assert_true(tensor_f32(y)[0] == 10 * (float)(i + 2));
        module_close(bench.replicas[i].module);
    }
    rig_close(&bench.rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_13_scatter),
        cmocka_unit_test(row_14_gather),
        cmocka_unit_test(row_16_parallel_apply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
