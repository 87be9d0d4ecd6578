/* conv_loops.h: the loops of conv_sums.c, which includes it for each instruction set and defines:
 *   LANES           floats of a vector register
 *   NAME(x)         the name of function x for this set
 *   TARGET          the functions' attribute
 *   SUM_VECTORS     vectors of pixels in a tile of sums, for CONV_FILTERS outputs each
 *   WEIGHT_TAPS, WEIGHT_BLOCKS   taps, and blocks of output channels, in a tile of weight_sums
 * A tile's accumulators fit the vector registers.
 */
typedef float NAME(Vector) __attribute__((vector_size(LANES * sizeof(float))));
#define Vector NAME(Vector)

TARGET static inline Vector NAME(load)(const float *from) {
    Vector vector;
    memcpy(&vector, from, sizeof vector);
    return vector;
}

// One tile's sums over one group of channels. `vectors`: a constant. Meanwhile the places of the
// next outputs' sums are prefetched, too; prefetching memory that does not exist has no effect.
ALWAYS_INLINE TARGET static inline void NAME(sum_tile)(const ConvSums *of, const ConvTile *tile,
                                                       ConvStream *ahead, const size_t vectors) {
    const size_t k = tile->k, p = tile->p, taps = of->lowered.taps;
    const float *weights = of->weights + (k * of->lowered.channels + tile->c * CONV_FILTERS) * taps;
    const float *bias = tile->c == 0 ? of->bias : NULL;
    const bool accumulate = of->accumulate || tile->c > 0;
    Vector sums[CONV_FILTERS][SUM_VECTORS];
    const size_t outputs = of->outputs - k < CONV_FILTERS ? of->outputs - k : CONV_FILTERS;
    for (size_t i = 0; i < CONV_FILTERS; i++)
        for (size_t v = 0; v < vectors; v++)
            sums[i][v] = (Vector){0} + (bias && i < outputs ? bias[k + i] : 0.0f);
    for (size_t c = tile->c; c < tile->c + tile->channels; c++) {
        const float *from = of->lowered.data + c * of->lowered.plane + p;
        stream_prefetch(ahead);
        for (size_t i = c - tile->c; i < CONV_FILTERS; i += tile->channels)
            for (size_t v = 0; v < vectors; v++)
                __builtin_prefetch(of->to + (k + CONV_FILTERS + i) * of->stride + p + v * LANES, 1);
        for (size_t t = 0; t < taps; t++, weights += CONV_FILTERS) {
            const float *x = from + of->lowered.offsets[t];
            Vector pixels[SUM_VECTORS];
            for (size_t v = 0; v < vectors; v++) pixels[v] = NAME(load)(x + v * LANES);
            for (size_t i = 0; i < CONV_FILTERS; i++)
                for (size_t v = 0; v < vectors; v++) sums[i][v] += weights[i] * pixels[v];
        }
    }
    for (size_t i = 0; i < outputs; i++)
        for (size_t v = 0; v < vectors; v++) {
            float *to = of->to + (k + i) * of->stride + p + v * LANES;
            const size_t left = tile->count - v * LANES, size = left < LANES ? left : LANES;
            Vector sum = sums[i][v], before = {0};
            if (size == LANES) {
                if (accumulate) sum += NAME(load)(to);
                memcpy(to, &sum, sizeof sum);
            } else {
                if (accumulate) memcpy(&before, to, size * sizeof *to);
                sum += before;
                memcpy(to, &sum, size * sizeof *to);
            }
        }
}

TARGET static void NAME(sum_tiles)(const ConvSums *of, const ConvTile *tile, ConvStream *ahead,
                                   size_t vectors) {
    switch (vectors) {
    case 1:
        NAME(sum_tile)(of, tile, ahead, 1);
        break;
    case 2:
        NAME(sum_tile)(of, tile, ahead, 2);
        break;
#if SUM_VECTORS >= 3
    case 3:
        NAME(sum_tile)(of, tile, ahead, 3);
        break;
#endif
#if SUM_VECTORS >= 4
    case 4:
        NAME(sum_tile)(of, tile, ahead, 4);
        break;
#endif
#if SUM_VECTORS >= 5
    case 5:
        NAME(sum_tile)(of, tile, ahead, 5);
        break;
#endif
#if SUM_VECTORS >= 6
    case 6:
        NAME(sum_tile)(of, tile, ahead, 6);
        break;
#endif
    }
}

TARGET static void NAME(sums)(const ConvSums *of) {
    const size_t vectors = (of->pixels + LANES - 1) / LANES, group = conv_group(&of->lowered);
    const size_t tiles = (vectors + SUM_VECTORS - 1) / SUM_VECTORS;
    const size_t filters = (of->outputs + CONV_FILTERS - 1) / CONV_FILTERS;
    ConvStream ahead = stream_of(of->ahead, tiles * filters * of->lowered.channels);
    for (size_t i = 0, next, v = 0; i < tiles; i++, v = next) {
        next = vectors * (i + 1) / tiles; // so that all are about equally large
        for (size_t c = 0; c < of->lowered.channels; c += group)
            for (size_t k = 0; k < of->outputs; k += CONV_FILTERS) {
                const size_t left = of->lowered.channels - c;
                const ConvTile tile = {k, c, left < group ? left : group, v * LANES,
                                       of->pixels - v * LANES};
                NAME(sum_tiles)(of, &tile, &ahead, next - v);
            }
    }
}

// One tile: WEIGHT_TAPS taps (of c and t together) from `tap` on, and `blocks` (a constant) blocks
// from `block` on. Taps beyond the last one repeat it, and their sums are dropped.
ALWAYS_INLINE TARGET static inline void NAME(weight_tile)(const ConvWeightSums *of, size_t tap,
                                                          size_t block, ConvStream ahead[2],
                                                          const size_t blocks) {
    enum { VECTORS = CONV_BLOCK / LANES };
    const size_t all = of->lowered.channels * of->lowered.taps;
    const float *x[WEIGHT_TAPS];
    for (size_t i = 0; i < WEIGHT_TAPS; i++) {
        const size_t at = tap + i < all ? tap + i : all - 1;
        x[i] = of->lowered.data + at / of->lowered.taps * of->lowered.plane +
               of->lowered.offsets[at % of->lowered.taps] + of->first;
    }
    const float *dy = of->dy + block * CONV_CHUNK * CONV_BLOCK;
    Vector sums[WEIGHT_TAPS][WEIGHT_BLOCKS * VECTORS] = {0};
    for (size_t p = 0; p < of->pixels;) {
        const size_t end = of->pixels - p < LINE ? of->pixels : p + LINE;
        stream_prefetch(&ahead[0]);
        stream_prefetch(&ahead[1]);
        for (; p < end; p++) {
            Vector gradient[WEIGHT_BLOCKS * VECTORS];
            for (size_t v = 0; v < blocks * VECTORS; v++)
                gradient[v] = NAME(load)(dy + (v / VECTORS * CONV_CHUNK + p) * CONV_BLOCK +
                                         v % VECTORS * LANES);
            for (size_t i = 0; i < WEIGHT_TAPS; i++)
                for (size_t v = 0; v < blocks * VECTORS; v++) sums[i][v] += x[i][p] * gradient[v];
        }
    }
    for (size_t i = 0; i < WEIGHT_TAPS && tap + i < all; i++)
        for (size_t v = 0; v < blocks * VECTORS; v++) {
            float *to =
                of->to + ((block + v / VECTORS) * all + tap + i) * CONV_BLOCK + v % VECTORS * LANES;
            Vector sum = sums[i][v] + NAME(load)(to);
            memcpy(to, &sum, sizeof sum);
        }
}

TARGET static void NAME(weight_sums)(const ConvWeightSums *of) {
    const size_t all = of->lowered.channels * of->lowered.taps;
    const size_t tiles =
        (of->blocks + WEIGHT_BLOCKS - 1) / WEIGHT_BLOCKS * ((all + WEIGHT_TAPS - 1) / WEIGHT_TAPS);
    const size_t times = tiles * ((of->pixels + LINE - 1) / LINE);
    ConvStream ahead[] = {stream_of(of->ahead[0], times), stream_of(of->ahead[1], times)};
    for (size_t block = 0; block < of->blocks; block += WEIGHT_BLOCKS)
        for (size_t tap = 0; tap < all; tap += WEIGHT_TAPS) {
            if (block + WEIGHT_BLOCKS <= of->blocks)
                NAME(weight_tile)(of, tap, block, ahead, WEIGHT_BLOCKS);
            else
                NAME(weight_tile)(of, tap, block, ahead, 1);
        }
}

#undef Vector
#undef LANES
#undef NAME
#undef TARGET
#undef SUM_VECTORS
#undef WEIGHT_TAPS
#undef WEIGHT_BLOCKS
