/* test_cuda_allocator.c: the bookkeeping of the GPU memory allocator, without a GPU: the simulated
 * card returns unmapped addresses, so an allocator that accesses the memory crashes.
 */
#include "tests/rigs/check.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/base/rng.h"
#include "common/device/cuda/allocator.h"

enum { KIB = 1 << 10, MIB = 1 << 20, PIECES = 200 };

typedef struct Piece {
    uintptr_t memory; // 0: unused entry
    size_t bytes;
} Piece;

// A simulated card with `room` bytes, which records its allocations.
typedef struct Card {
    size_t room, given;
    uintptr_t next; // the next address: addresses are never reused
    Piece segments[PIECES];
    size_t asked; // requests, also failed ones
} Card;

static void *card_take(void *context, size_t bytes) {
    Card *card = context;
    card->asked++;
    if (card->given + bytes > card->room) return NULL;
    size_t i = 0;
    while (card->segments[i].memory != 0) i++;
    assert_true(i < PIECES);
    card->segments[i] = (Piece){card->next, bytes};
    card->next += bytes + 512;
    card->given += bytes;
    return (void *)card->segments[i].memory;
}

static void card_give_back(void *context, void *memory) {
    Card *card = context;
    for (size_t i = 0; i < PIECES; i++) {
        if (card->segments[i].memory != (uintptr_t)memory) continue;
        card->given -= card->segments[i].bytes;
        card->segments[i].memory = 0;
        return;
    }
    fail_msg("%p was given back to the card, which did not give it", memory);
}

static Card card_with(size_t room) {
    return (Card){.room = room, .next = (uintptr_t)1 << 40};
}

static CudaAllocator *open_on(Card *card) {
    return cuda_allocator_create((CudaMemorySource){card_take, card_give_back, card});
}

static bool overlap(Piece a, Piece b) {
    return a.memory < b.memory + b.bytes && b.memory < a.memory + a.bytes;
}

// Asserts that a new allocation is aligned, inside a segment of the card, and overlaps no other.
static void check_piece(const Card *card, const Piece *pieces, size_t index) {
    Piece piece = pieces[index];
    assert_int_equal(piece.memory % 512, 0);
    bool inside = false;
    for (size_t i = 0; i < PIECES; i++) {
        Piece segment = card->segments[i];
        inside |= segment.memory != 0 && piece.memory >= segment.memory &&
                  piece.memory + piece.bytes <= segment.memory + segment.bytes;
        if (i == index || pieces[i].memory == 0) continue;
        if (overlap(piece, pieces[i])) fail_msg("pieces %zu and %zu overlap", index, i);
    }
    assert_true(inside);
}

// Sizes of every order of magnitude, including 0.
static size_t draw_size(uint64_t seed, uint64_t step) {
    size_t most = (size_t)1 << rng_below(seed, RNG_STREAM_TEST, 3 * step + 1, 26);
    return (size_t)rng_below(seed, RNG_STREAM_TEST, 3 * step + 2, most);
}

static void test_random_sequences(void **state) {
    (void)state;
    size_t refused = 0, taken = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        Card card = card_with((size_t)(64 + 64 * seed) * MIB);
        CudaAllocator *allocator = open_on(&card);
        Piece pieces[PIECES] = {{0}};
        for (uint64_t step = 0; step < 2000; step++) {
            size_t i = (size_t)rng_below(seed, RNG_STREAM_TEST, 3 * step, PIECES);
            if (pieces[i].memory != 0) {
                cuda_allocator_give_back(allocator, (void *)pieces[i].memory);
                pieces[i].memory = 0;
                continue;
            }
            size_t bytes = draw_size(seed, step);
            pieces[i] = (Piece){(uintptr_t)cuda_allocator_take(allocator, bytes), bytes};
            if (pieces[i].memory == 0) {
                refused++;
                continue;
            }
            taken++;
            if (bytes == 0) pieces[i].bytes = 1; // its address must be unique too
            check_piece(&card, pieces, i);
            assert_int_equal(cuda_allocator_reserved(allocator), card.given);
        }
        cuda_allocator_close(allocator);
        assert_int_equal(card.given, 0);
    }
    assert_true(taken > 10000);
    assert_true(refused > 10); // small cards must have run out of memory
}

// After everything was freed, the same requests are served without the card.
static void test_reuse(void **state) {
    (void)state;
    Card card = card_with((size_t)4096 * MIB);
    CudaAllocator *allocator = open_on(&card);
    size_t asked = 0;
    for (int round = 0; round < 3; round++) {
        void *memory[60];
        for (uint64_t i = 0; i < 60; i++)
            memory[i] = cuda_allocator_take(allocator, draw_size(99, i));
        for (size_t i = 0; i < 60; i++) cuda_allocator_give_back(allocator, memory[i * 7 % 60]);
        if (round == 0) asked = card.asked;
    }
    assert_true(asked > 1);
    assert_int_equal(card.asked, asked);
    cuda_allocator_close(allocator);
}

static void test_best_fit(void **state) {
    (void)state;
    Card card = card_with((size_t)4096 * MIB);
    CudaAllocator *allocator = open_on(&card);
    void *big = cuda_allocator_take(allocator, 100 * MIB);
    void *middle = cuda_allocator_take(allocator, 40 * MIB);
    void *other = cuda_allocator_take(allocator, 60 * MIB);
    cuda_allocator_give_back(allocator, big);
    cuda_allocator_give_back(allocator, middle);
    cuda_allocator_give_back(allocator, other);
    assert_ptr_equal(cuda_allocator_take(allocator, 39 * MIB + 1), middle);
    assert_ptr_equal(cuda_allocator_take(allocator, 55 * MIB), other);
    assert_int_equal(card.asked, 3);
    cuda_allocator_close(allocator);
}

// A block is split into two, and the parts are merged again in any order of frees.
static void test_split_and_merge(void **state) {
    (void)state;
    for (int order = 0; order < 6; order++) {
        Card card = card_with((size_t)4096 * MIB);
        CudaAllocator *allocator = open_on(&card);
        char *thirds[3];
        for (size_t i = 0; i < 3; i++) thirds[i] = cuda_allocator_take(allocator, 5 * MIB);
        assert_int_equal(card.asked, 1);
        assert_ptr_equal(thirds[1], thirds[0] + 5 * MIB);
        assert_ptr_equal(thirds[2], thirds[1] + 5 * MIB);
        int first = order / 2, second = (first + 1 + order % 2) % 3;
        cuda_allocator_give_back(allocator, thirds[first]);
        cuda_allocator_give_back(allocator, thirds[second]);
        cuda_allocator_give_back(allocator, thirds[3 - first - second]);
        assert_ptr_equal(cuda_allocator_take(allocator, 20 * MIB), thirds[0]);
        assert_int_equal(card.asked, 1);
        cuda_allocator_close(allocator);
    }
}

// Small requests have their own segments and never split a large block.
static void test_kinds_stay_apart(void **state) {
    (void)state;
    Card card = card_with((size_t)4096 * MIB);
    CudaAllocator *allocator = open_on(&card);
    void *large = cuda_allocator_take(allocator, 30 * MIB);
    cuda_allocator_give_back(allocator, large);
    char *small = cuda_allocator_take(allocator, 100), *next = cuda_allocator_take(allocator, MIB);
    assert_int_equal(card.asked, 2);
    assert_ptr_equal(next, small + 512);
    assert_ptr_equal(cuda_allocator_take(allocator, 30 * MIB), large);
    assert_int_equal(card.asked, 2);
    // The rest of a large block is not split off if it is too small for a large request.
    cuda_allocator_give_back(allocator, large);
    assert_ptr_equal(cuda_allocator_take(allocator, 29 * MIB), large);
    (void)cuda_allocator_take(allocator, 512 * KIB);
    assert_int_equal(card.asked, 2);
    cuda_allocator_close(allocator);
}

static void test_exhausted(void **state) {
    (void)state;
    Card card = card_with((size_t)100 * MIB);
    CudaAllocator *allocator = open_on(&card);
    void *kept = cuda_allocator_take(allocator, 40 * MIB);
    void *unused = cuda_allocator_take(allocator, 40 * MIB);
    cuda_allocator_give_back(allocator, unused);
    // 60 MiB fit only after the cached 40 MiB were returned to the card; then it is full.
    void *sixty = cuda_allocator_take(allocator, 60 * MIB);
    assert_non_null(sixty);
    assert_int_equal(cuda_allocator_reserved(allocator), 100 * MIB);
    assert_null(cuda_allocator_take(allocator, 1));
    assert_null(cuda_allocator_take(allocator, SIZE_MAX));
    // The allocator still works.
    cuda_allocator_give_back(allocator, kept);
    assert_ptr_equal(cuda_allocator_take(allocator, 40 * MIB), kept);
    cuda_allocator_give_back(allocator, sixty);
    assert_non_null(cuda_allocator_take(allocator, 1));
    cuda_allocator_close(allocator);
    assert_int_equal(card.given, 0);
    cuda_allocator_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sequences), cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_best_fit),         cmocka_unit_test(test_split_and_merge),
        cmocka_unit_test(test_kinds_stay_apart), cmocka_unit_test(test_exhausted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
