/* map.cuh: the elementwise kernel y[i] = operation(x[i], ...).
 *
 * Such a kernel is as fast as memory is, and memory likes wide accesses: a thread loads and stores
 * four neighbours at once (a Vector) where all the arrays are aligned to that, and single elements
 * at the end, or everywhere if one of the arrays is not. An operation is a small struct whose
 * operator() is the formula for one element; its further arguments are members.
 *
 * No pointer is restrict: an output may be an input, since a thread reads all of its elements
 * before it writes them.
 */
#ifndef COMMON_DEVICE_CUDA_MAP_CUH
#define COMMON_DEVICE_CUDA_MAP_CUH

#include "common/device/cuda/launch.cuh"

enum { WIDE = 4 };

template <typename T, int WIDTH> struct alignas(WIDTH * sizeof(T)) Vector { T at[WIDTH]; };

// Vector number i of an array of vectors.
template <int WIDTH, typename T>
static __device__ Vector<T, WIDTH> vector_load(const T *x, size_t i) {
    return reinterpret_cast<const Vector<T, WIDTH> *>(x)[i];
}

template <int WIDTH, typename T>
static __device__ void vector_store(T *y, size_t i, Vector<T, WIDTH> vector) {
    reinterpret_cast<Vector<T, WIDTH> *>(y)[i] = vector;
}

// Whether all arrays are aligned to wide vectors. (NULL is.)
template <typename... T> static inline __host__ __device__ bool is_wide(const T *...x) {
    return ((reinterpret_cast<uintptr_t>(x) % (WIDE * sizeof(T)) == 0) && ...);
}

template <int WIDTH, typename Output, typename Operation, typename... Inputs>
static __device__ Vector<Output, WIDTH> vector_map(const Operation &operation,
                                                   const Vector<Inputs, WIDTH> &...x) {
    Vector<Output, WIDTH> y;
    for (int k = 0; k < WIDTH; k++) y.at[k] = operation(x.at[k]...);
    return y;
}

// The number of vectors in `count` elements: 0 if one of the arrays is not aligned.
template <typename... Arrays>
static inline __host__ __device__ size_t wides_of(size_t count, const Arrays *...arrays) {
    return is_wide(arrays...) ? count / WIDE : 0;
}

// The first `wides` vectors, and from there on single elements.
template <typename Operation, typename Output, typename... Inputs>
static __device__ void map_elements(const Operation &operation, size_t wides, size_t count,
                                    Output *y, const Inputs *...x) {
    FOR_EACH(i, wides)
    vector_store(y, i, vector_map<WIDE, Output>(operation, vector_load<WIDE>(x, i)...));
    FOR_EACH(i, count - wides * WIDE) {
        size_t single = wides * WIDE + i;
        y[single] = operation(x[single]...);
    }
}

template <typename Operation, typename Output, typename... Inputs>
static __global__ void map_kernel(Operation operation, size_t wides, size_t count, Output *y,
                                  const Inputs *...x) {
    map_elements(operation, wides, count, y, x...);
}

// y[count] = operation(x[count]...)
template <typename Operation, typename Output, typename... Inputs>
static void cuda_map(Operation operation, size_t count, Output *y, const Inputs *...x) {
    if (count == 0) return;
    CudaDevice *cuda = cuda_current();
    size_t wides = wides_of(count, y, x...);
    cuda_launch(cuda, map_kernel<Operation, Output, Inputs...>,
                cuda_grid(cuda, wides ? wides : count), operation, wides, count, y, x...);
}

// An operation whose result is added to its first input.
template <typename Operation> struct Added {
    Operation operation;
    template <typename... Inputs> __device__ float operator()(float before, Inputs... x) const {
        return before + operation(x...);
    }
    __device__ void enter(size_t channel) { operation.enter(channel); }
};

// A walk over a matrix[rows, columns] in equal steps, which keeps account of where it is: a
// division per element would cost more than most kernels. After the last row comes the first.
struct Walk {
    size_t rows, columns, row_step, column_step, row, column;

    __device__ Walk(size_t row_count, size_t column_count, size_t first, size_t step)
        : rows(row_count), columns(column_count), row_step(step / column_count % row_count),
          column_step(step % column_count), row(first / column_count % row_count),
          column(first % column_count) {}

    __device__ void next() {
        row += row_step;
        column += column_step;
        if (column >= columns) column -= columns, row++;
        if (row >= rows) row -= rows;
    }
};

// Over the grid, beside FOR_EACH.
static inline __device__ Walk walk_grid(size_t rows, size_t columns) {
    return Walk(rows, columns, (size_t)blockIdx.x * blockDim.x + threadIdx.x,
                (size_t)gridDim.x * blockDim.x);
}

#endif
