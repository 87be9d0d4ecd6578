/* pixels.cu: the GPUs' kernels for dense prediction: upsampling, and the losses and
 * classes of single pixels.
 *
 * Logits are [n, classes, inner]: the classes of one pixel lie far apart, those of neighbouring
 * pixels side by side. One thread per pixel, walking through its classes, reads along memory with
 * its neighbours.
 *
 * The hardest pixels are found without sorting and without the host (see "hard pixels" below).
 */
#include "common/device/cuda/reduce.cuh"
#include "common/device/cuda/window.cuh"

// ---- upsampling ------------------------------------------------------------------------------

static void cuda_upsample2x(const float *x, float *y, size_t planes, size_t h, size_t w) {
    upsample2x<float>(planes, 1, h, w, x, y);
}

// Row r of dx is at r w, its two rows of dy at 4 r w and 2 w further: planes need no counting.
static void cuda_upsample2x_gradient(const float *dy, float *dx, bool accumulate, size_t planes,
                                     size_t h, size_t w) {
    size_t count = planes * h * w;
    cuda_run(count, [=] __device__() {
        FOR_EACH(i, count) {
            const float *upper = dy + i / w * 4 * w + 2 * (i % w), *lower = upper + 2 * w;
            put(&dx[i], (upper[0] + upper[1]) + (lower[0] + lower[1]), accumulate);
        }
    });
}

// ---- losses and classes ----------------------------------------------------------------------

// Class k of pixel i is at first_class(i) + k inner.
static __device__ size_t first_class(size_t pixel, size_t classes, size_t inner) {
    return pixel / inner * classes * inner + pixel % inner;
}

static void cuda_pixel_cross_entropy(PixelLabels labels, const float *logits, float *probabilities,
                                     float *losses) {
    size_t classes = labels.classes, inner = labels.inner, count = labels.n * inner;
    cuda_run(count, [=] __device__() {
        FOR_EACH(i, count) {
            const float *x = logits + first_class(i, classes, inner);
            float *p = probabilities + first_class(i, classes, inner);
            float max = -INFINITY, total = 0;
            for (size_t k = 0; k < classes; k++) max = x[k * inner] > max ? x[k * inner] : max;
            for (size_t k = 0; k < classes; k++) total += expf(x[k * inner] - max);
            for (size_t k = 0; k < classes; k++) p[k * inner] = expf(x[k * inner] - max) / total;
            int64_t label = labels.target[i];
            losses[i] = label < 0                  ? 0
                        : (size_t)label >= classes ? NAN
                                                   : logf(total) + (max - x[(size_t)label * inner]);
        }
    });
}

static void cuda_pixel_cross_entropy_gradient(PixelLabels labels, const float *probabilities,
                                              const uint8_t *kept, const float *upstream,
                                              float *dlogits, bool accumulate) {
    size_t classes = labels.classes, inner = labels.inner, count = labels.n * classes * inner;
    cuda_run(count, [=] __device__() {
        FOR_EACH(i, count) {
            size_t plane = i / inner, pixel = plane / classes * inner + i % inner;
            float onehot = labels.target[pixel] == (int64_t)(plane % classes) ? 1.0f : 0.0f;
            float gradient = kept[pixel] ? (probabilities[i] - onehot) * *upstream : 0;
            put(&dlogits[i], gradient, accumulate);
        }
    });
}

static void cuda_predict_pixels(const float *logits, int32_t *predicted, size_t n, size_t classes,
                                size_t inner) {
    size_t count = n * inner;
    cuda_run(count, [=] __device__() {
        FOR_EACH(i, count) {
            const float *x = logits + first_class(i, classes, inner);
            float largest = -INFINITY;
            int32_t best = 0;
            bool numbers = true;
            for (size_t k = 0; k < classes; k++) {
                float value = x[k * inner];
                numbers = numbers && value == value;
                if (value > largest) {
                    largest = value;
                    best = (int32_t)k;
                }
            }
            predicted[i] = numbers ? best : -1;
        }
    });
}

// Integers: the order of their addition does not matter.
static void cuda_count_pixels(PixelLabels labels, const int32_t *predicted, int64_t *confusion) {
    size_t classes = labels.classes, count = labels.n * labels.inner;
    cuda_clear(confusion, classes * (classes + 1) * sizeof *confusion);
    cuda_run(count, [=] __device__() {
        FOR_EACH(i, count) {
            int64_t label = labels.target[i];
            if (label < 0 || (size_t)label >= classes) continue;
            size_t column = predicted[i] < 0 ? classes : (size_t)predicted[i];
            int64_t *cell = &confusion[(size_t)label * (classes + 1) + column];
            atomicAdd(reinterpret_cast<unsigned long long *>(cell), 1ull);
        }
    });
}

// ---- hard pixels -----------------------------------------------------------------------------
//
// A loss becomes a whole number of 32 bits that orders as it does (rank_of), and the question
// becomes where to cut: a pixel is kept if its rank is above the cut, or if it is one of the first
// `equal` pixels right at it. If enough losses are above the threshold, the threshold's rank is the
// cut. Otherwise the rank of the `least`-th hardest is, which is found eight bits at a time from
// the top: count the ranks that agree with the bits found so far by their next eight bits, and see
// in which of these 256 bins the wanted loss must lie (a radix selection). Each step's result
// stays on the device for the next.
//
// Counts are whole numbers, so the order of adding them is free (atomics in shared memory). Each
// block takes pixels that lie side by side, in order: so "the first of equals" is a question of how
// many equals there are in the blocks before.

enum { BINS = 256, BIN_BITS = 8 }; // BINS == CUDA_BLOCK: a thread for each
enum { HARD_BLOCKS = 256 };        // maximum, because one block sums the bins of all blocks

struct Selection {
    uint64_t remaining; // how many of the hardest lie at or below the ranks that `cut` begins
    uint64_t equal;     // how many right at the cut are kept
    uint32_t cut;
    bool searching;
};

// One block's share of all pixels.
struct Part {
    uint64_t count; // of the elements that a step counts
    double sum;
};

struct Pixels {
    const float *losses;
    const int64_t *target;
    size_t count, per_block;
};

// Maps a float to an integer with the same order: the bits of a negative number are inverted. NaN
// is the largest, and both zeros are equal. 0 is the rank of ignored pixels and of no number.
static __device__ uint32_t rank_of(float loss) {
    if (loss != loss) return 0xffffffff;
    uint32_t bits = __float_as_uint(loss + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000;
}

static __device__ uint32_t rank_at(const Pixels &pixels, size_t i) {
    return pixels.target[i] >= 0 ? rank_of(pixels.losses[i]) : 0;
}

static __device__ size_t block_end(const Pixels &pixels) {
    size_t end = (blockIdx.x + 1) * pixels.per_block;
    return end < pixels.count ? end : pixels.count;
}

// Loops over this block's pixels, one thread's share of them.
#define FOR_BLOCK(i, pixels)                                                              \
    for (size_t i = blockIdx.x * (pixels).per_block + threadIdx.x; i < block_end(pixels); \
         i += CUDA_BLOCK)

// parts[block].count = how many of the block's pixels have a rank with is_counted(rank).
template <typename IsCounted>
static void count_ranks(unsigned blocks, const Pixels &pixels, Part *parts,
                        const IsCounted &is_counted) {
    cuda_run_blocks(blocks, [=] __device__() {
        uint64_t count = 0;
        FOR_BLOCK(i, pixels) count += is_counted(rank_at(pixels, i));
        count = block_sum(count);
        if (threadIdx.x == 0) parts[blockIdx.x].count = count;
    });
}

static __device__ uint64_t count_of(const Part *parts, size_t part_count) {
    uint64_t count = 0;
    for (size_t i = threadIdx.x; i < part_count; i += CUDA_BLOCK) count += parts[i].count;
    return block_sum(count);
}

// One block.
static __global__ void begin_selection(const Part *parts, size_t part_count, float threshold,
                                       size_t least, Selection *selection) {
    uint64_t above = count_of(parts, part_count);
    if (threadIdx.x > 0) return;
    bool enough = above >= least;
    *selection = {enough ? 0 : least, 0, enough ? rank_of(threshold) : 0, !enough};
}

// bins[block, BINS]: how many of the block's ranks that begin as the cut does have which next bits.
static __global__ void count_bins(Pixels pixels, const Selection *selection, int shift,
                                  uint32_t *bins) {
    __shared__ uint32_t counts[BINS];
    if (!selection->searching) return; // all threads agree
    counts[threadIdx.x] = 0;
    __syncthreads();
    uint64_t begun = (uint64_t)selection->cut >> (shift + BIN_BITS);
    FOR_BLOCK(i, pixels) {
        uint64_t rank = rank_at(pixels, i);
        if (rank >> (shift + BIN_BITS) == begun) atomicAdd(&counts[rank >> shift & (BINS - 1)], 1u);
    }
    __syncthreads();
    bins[blockIdx.x * BINS + threadIdx.x] = counts[threadIdx.x];
}

// The next bits of the cut: one block, a thread per bin. If there are fewer pixels than are to be
// found, all are kept, and the cut stays below them.
static __global__ void choose_bin(const uint32_t *bins, size_t blocks, int shift,
                                  Selection *selection) {
    __shared__ uint64_t counts[BINS];
    if (!selection->searching) return;
    uint64_t count = 0;
    for (size_t block = 0; block < blocks; block++) count += bins[block * BINS + threadIdx.x];
    counts[threadIdx.x] = count;
    __syncthreads();
    if (threadIdx.x > 0) return;
    int bin = BINS - 1;
    uint64_t remaining = selection->remaining;
    for (; bin >= 0 && counts[bin] < remaining; bin--) remaining -= counts[bin];
    if (bin >= 0) {
        selection->cut |= (uint32_t)bin << shift;
        selection->equal = selection->remaining = remaining;
    }
    selection->searching = bin >= 0;
}

static __global__ void mark_kept(Pixels pixels, const Selection *selection, const Part *equals,
                                 uint8_t *kept, Part *parts) {
    uint64_t passed = count_of(equals, blockIdx.x); // equals in the blocks before, then here
    uint64_t keep = 0;
    double sum = 0;
    size_t end = block_end(pixels);
    for (size_t first = blockIdx.x * pixels.per_block; first < end; first += CUDA_BLOCK) {
        size_t i = first + threadIdx.x;
        uint32_t rank = i < end ? rank_at(pixels, i) : 0;
        unsigned total;
        bool at_cut = rank > 0 && rank == selection->cut;
        uint64_t place = passed + flags_before(at_cut, &total);
        passed += total;
        bool keeps = rank > selection->cut || (at_cut && place < selection->equal);
        if (i < end) kept[i] = keeps;
        keep += keeps;
        sum += keeps ? (double)pixels.losses[i] : 0;
        __syncthreads(); // before the next flags are counted
    }
    keep = block_sum(keep);
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = {keep, sum};
}

// One block.
static __global__ void end_selection(const Part *parts, size_t part_count, int64_t *kept_count,
                                     float *sum) {
    uint64_t keep = count_of(parts, part_count);
    double total = 0;
    for (size_t i = threadIdx.x; i < part_count; i += CUDA_BLOCK) total += parts[i].sum;
    total = block_sum(total);
    if (threadIdx.x > 0) return;
    *kept_count = (int64_t)keep;
    *sum = (float)total;
}

// The layout of the device's workspace.
struct HardRoom {
    Selection selection;
    Part equals[HARD_BLOCKS], parts[HARD_BLOCKS];
    uint32_t bins[HARD_BLOCKS * BINS];
};

static void cuda_hard_pixels(const HardPixels *of, uint8_t *kept, int64_t *kept_count, float *sum) {
    CudaDevice *cuda = cuda_current();
    unsigned blocks = reduce_grid(of->count, 8 * CUDA_BLOCK);
    if (blocks > HARD_BLOCKS) blocks = HARD_BLOCKS;
    Pixels pixels = {of->losses, of->target, of->count, (of->count + blocks - 1) / blocks};
    HardRoom *room = (HardRoom *)cuda_workspace(cuda, sizeof *room);
    Selection *selection = &room->selection;
    float threshold = of->threshold;
    count_ranks(blocks, pixels, room->parts,
                [=] __device__(uint32_t rank) { return rank > rank_of(threshold); });
    cuda_launch(cuda, begin_selection, 1, room->parts, blocks, threshold, of->least, selection);
    for (int shift = 32 - BIN_BITS; shift >= 0; shift -= BIN_BITS) {
        cuda_launch(cuda, count_bins, blocks, pixels, selection, shift, room->bins);
        cuda_launch(cuda, choose_bin, 1, room->bins, blocks, shift, selection);
    }
    count_ranks(blocks, pixels, room->equals,
                [=] __device__(uint32_t rank) { return rank == selection->cut; });
    cuda_launch(cuda, mark_kept, blocks, pixels, selection, room->equals, kept, room->parts);
    cuda_launch(cuda, end_selection, 1, room->parts, blocks, kept_count, sum);
}

extern "C" const PixelKernels cuda_pixels = {
    .upsample2x = cuda_upsample2x,
    .upsample2x_gradient = cuda_upsample2x_gradient,
    .pixel_cross_entropy = cuda_pixel_cross_entropy,
    .hard_pixels = cuda_hard_pixels,
    .pixel_cross_entropy_gradient = cuda_pixel_cross_entropy_gradient,
    .predict_pixels = cuda_predict_pixels,
    .count_pixels = cuda_count_pixels,
};
