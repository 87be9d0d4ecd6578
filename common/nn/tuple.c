/* tuple.c: tuples as trees: building, taking apart, and building again. */
#include "common/nn/tuple.h"
#include "common/nn/ops.h"

static Tensor *tuple_alloc(Tape *tape, int count) {
    CHECK(count >= 0, "a tuple of %d", count);
    Tensor *tuple = tape_alloc(tape, sizeof *tuple);
    // No elements: an operation that takes it for a tensor reads and writes nothing.
    *tuple = tensor_make(tape->device, DTYPE_F32, 1, (size_t[]){0}, NULL);
    tuple->items = tape_alloc(tape, (size_t)count * sizeof *tuple->items);
    tuple->item_count = count;
    return tuple;
}

Tensor *tuple_create(Tape *tape, Tensor *const *items, int count) {
    Tensor *tuple = tuple_alloc(tape, count);
    if (!tape_check_values(tape, "tuple", items, (size_t)count)) return NULL;
    for (int i = 0; i < count; i++) tuple->items[i] = op_float32(tape, items[i]);
    return tuple;
}

Tensor *tuple_keep(Tape *tape, Tensor *const *items, int count) {
    Tensor *tuple = tuple_alloc(tape, count);
    if (!tape_check_values(tape, "tuple", items, (size_t)count)) return NULL;
    for (int i = 0; i < count; i++) tuple->items[i] = items[i];
    return tuple;
}

size_t tuple_leaves(Tensor *tensor, Tensor **leaves) {
    if (!tensor || !tensor->items) {
        if (leaves) leaves[0] = tensor;
        return 1;
    }
    size_t count = 0;
    for (int i = 0; i < tensor->item_count; i++)
        count += tuple_leaves(tensor->items[i], leaves ? leaves + count : NULL);
    return count;
}

static Tensor *rebuild(Tape *tape, const Tensor *tree, Tensor *const **next) {
    if (!tree || !tree->items) return *(*next)++;
    Tensor *tuple = tuple_alloc(tape, tree->item_count);
    for (int i = 0; i < tree->item_count; i++)
        tuple->items[i] = rebuild(tape, tree->items[i], next);
    return tuple;
}

Tensor *tuple_with_leaves(Tape *tape, const Tensor *tree, Tensor *const *leaves) {
    return rebuild(tape, tree, &leaves);
}

bool tuple_same_tree(const Tensor *a, const Tensor *b) {
    if (!a || !b) return a == b;
    if (!a->items || !b->items) return a->items == b->items;
    if (a->item_count != b->item_count) return false;
    for (int i = 0; i < a->item_count; i++)
        if (!tuple_same_tree(a->items[i], b->items[i])) return false;
    return true;
}
