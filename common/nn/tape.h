/* tape.h: reverse-mode automatic differentiation.
 *
 * An operation runs forward at once and, if gradients are wanted, records a TapeNode with its
 * backward function. tape_backward first counts, from the loss, the recorded uses of every tensor
 * that contribute to its gradient, then runs the nodes in reverse. When the last use of a tensor
 * has contributed, the tensor is *ready*; for a parameter, on_ready is called. The uses are counted
 * in every backward, so shared weights, unused parameters and dynamic graphs work as in PyTorch.
 *
 * A tape has one device, an arena in device memory for activations, and an arena on the host for
 * nodes. One thread at a time uses a tape. It is reset after each step; from the second step on it
 * allocates nothing. Operations are asynchronous unless their comment says otherwise.
 *
 * The first error of a forward pass is kept on the tape: the operation returns NULL, and operations
 * on NULL or on a failed tape return NULL. tape_error reports it at the end of the pass.
 *
 * Autocast (Tape.precision is not PRECISION_F32). "stored": the output's type where the device has
 * HalfKernels (GPUs, ref); CPUs store float32. 16-bit images are [n, h, w, c] in memory.
 *
 *   operation                        computes with             stored           PyTorch stores
 *   linear, convolution, attention   16-bit operands, output   16 bits          16 bits
 *   batch norm, training             float32                   input's type     input's type
 *   batch norm, evaluation           float32                   input's type;    input's type
 *                                                              float32 if recorded
 *   activations, sums, pooling,      float32                   input's type     input's type
 *     upsampling, shortcut
 *   flatten of images, tuple items,  -                         float32, exact   input's type
 *     copies to another device
 *   layer norm                       float32                   16 bits          float32, which the
 *                                                                                 product rounds
 *   gradients of weights             16-bit operands, output   float32          16 bits, widened
 *     linear in bf16, GPUs and ref   16-bit operands           float32          16 bits, widened
 *   losses                           float32                   float32          float32
 *   all other operations             float32                   float32          its autocast list
 *
 * Operands are activations, weights, biases and gradients. On CPUs the missing rounding of stored
 * outputs matters only where no product follows, because a product rounds its operands: in sums of
 * residuals, in ties of a maximum, and in gradients of biases.
 */
#ifndef COMMON_NN_TAPE_H
#define COMMON_NN_TAPE_H

#include "common/base/error.h"
#include "common/device/arena.h"
#include "common/nn/tensor.h"

typedef struct Tape Tape;
typedef struct TapeNode TapeNode;
typedef struct Profile Profile; // the trainer's, for --profile; other programs pass NULL

struct TapeNode {
    const char *op; // "linear": for errors and traces
    // Adds to the gradient of every input that requires one (tape_grad ... tape_grad_done). Reads
    // output->grad, which is complete.
    void (*backward)(Tape *tape, TapeNode *node);
    Tensor **inputs; // [input_count], tape_record's (NULL: absent), from tape_alloc
    size_t input_count;
    Tensor *output;
    void *saved;  // the operation's own struct for backward, from tape_alloc; or NULL
    bool reached; // the loss depends on the output (set by the counting pass)
    int reads;    // tape_backward_reads
};

struct Tape {
    Device *device;
    Arena arena;      // device memory: activations
    Arena notes;      // host memory: nodes and saved structs
    Profile *profile; // may be NULL; not owned
    bool recording;   // operations record nodes (PyTorch's torch.is_grad_enabled)
    bool training;    // PyTorch's module.training: batch norm uses and updates batch statistics
    // PyTorch's autocast; see the table at the top.
    Precision precision;
    Error error;

    TapeNode *nodes;
    size_t count, capacity;
    // Gradients of activations: allocated from the arena at the first contribution, reused during
    // backward.
    struct GradBuffer *buffers;
    size_t buffer_count, buffer_capacity;
    float *one;    // [1], device memory: the gradient of a loss, 1; NULL before the first backward
    void *scratch; // device memory
    size_t scratch_bytes;

    // Tapes on other devices (DataParallel's replicas), each recorded as one node of this tape and
    // reset with it.
    Tape **forks;
    size_t fork_count, forks_in_use;
    bool forked; // by tape_fork: its inputs may be activations of the tape it was forked from
};

Tape *tape_create(Device *device, Profile *profile);
void tape_close(Tape *tape); // and its forks; NULL is fine

// Removes all nodes, activations and the error. To use an activation afterwards is an error of
// module_forward or of the operation, until another has its memory.
void tape_reset(Tape *tape);

// Returns a tape on `device` with this tape's modes, valid until this tape is reset. For operations
// that run a part of the graph on another device.
Tape *tape_fork(Tape *tape, Device *device);

// ---- for operations ---------------------------------------------------------------------------
// Returns a new activation in the arena: contents undefined, no gradient.
Tensor *tape_tensor(Tape *tape, DType dtype, int ndim, const size_t *shape);
// Returns a tensor over the caller's device memory, which must outlive the step: an input.
Tensor *tape_view(Tape *tape, DType dtype, int ndim, const size_t *shape, void *data);
// Returns another tensor over x's memory, of x's shape: the output of an identity or of an
// operation in place. tape_alias_as: of as many elements in another shape.
Tensor *tape_alias(Tape *tape, const Tensor *x);
Tensor *tape_alias_as(Tape *tape, const Tensor *x, int ndim, const size_t *shape);
// Returns a tensor with a copy of host data on the tape's device: an input.
Tensor *tape_input(Tape *tape, DType dtype, int ndim, const size_t *shape, const void *host);
// Both return memory that is valid until the tape is reset: tape_alloc on the host, for structs and
// lists, tape_memory on the device.
void *tape_alloc(Tape *tape, size_t bytes);
void *tape_memory(Tape *tape, size_t bytes);
// Returns device memory that is valid until the next call; contents undefined.
void *tape_scratch(Tape *tape, size_t bytes);

// Records that output was computed from the inputs, and returns the node. If the tape is not
// recording or no input requires a gradient, it records nothing, output requires no gradient, and
// NULL is returned. Fails if an input is on another device, no longer has its values
// (tape_check_values), or is an activation of another tape, whose backward this one's would not
// run. tape_record_across: the inputs may be on any device and tape.
TapeNode *tape_record(Tape *tape, const char *op, void (*backward)(Tape *, TapeNode *),
                      Tensor *output, size_t input_count, Tensor *const *inputs, void *saved);
TapeNode *tape_record_across(Tape *tape, const char *op, void (*backward)(Tape *, TapeNode *),
                             Tensor *output, size_t input_count, Tensor *const *inputs,
                             void *saved);
// Whether the tensors (NULL: absent) are on the tape's device; if not, fails in the name of op with
// PyTorch's words. tape_record calls it with the inputs; an operation, with tensors that it does
// not record.
bool tape_check_devices(Tape *tape, const char *op, Tensor *const *tensors, size_t count);
// Whether the inputs that require a gradient are parameters, or activations of this tape since its
// last reset; if not, fails in the name of op. module_forward and tape_record call it.
bool tape_check_own(Tape *tape, const char *op, Tensor *const *inputs, size_t count);

// ---- operations in place ------------------------------------------------------------------------
// An operation may overwrite its input's memory if nothing reads the input's values afterwards: no
// recorded backward (tape_may_overwrite), and no later operation. The later operation fails, with
// the name of the operation that has overwritten; op_clone before it keeps the values. Source:
// PyTorch's version counters ("modified by an inplace operation").

// Which values the backward of `node` (NULL is fine) reads, besides gradients: a sum of the two, or
// 0. Without this call, both: right for any operation, and a copy more where one is in place.
enum { TAPE_READS_INPUTS = 1, TAPE_READS_OUTPUT = 2 };
void tape_backward_reads(TapeNode *node, int reads);
// Whether x is in memory of the tape whose values no backward needs.
bool tape_may_overwrite(const Tape *tape, const Tensor *x);
// `op` overwrites x's memory. y: the alias of x that has the new contents, or NULL.
void tape_overwrite(Tensor *x, Tensor *y, const char *op);
// Whether the tensors (NULL: absent) still have their values; if not, fails in the name of op.
// tape_record calls it.
bool tape_check_values(Tape *tape, const char *op, Tensor *const *tensors, size_t count);

// Records an error "op on device: message". Always returns NULL.
Tensor *tape_fail(Tape *tape, const char *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int tape_error(const Tape *tape, Error *err); // 0, or -1 with err filled (a copy)

// ---- backward ---------------------------------------------------------------------------------
// Computes the gradient of every tensor that requires one and that `output` depends on.
// Parameters' gradients are accumulated into those already defined.
//
//   output                                            its own gradient
//   a scalar without a gradient: a loss               1, filled in here
//   a tensor with a gradient (tape_make_grad)         as the caller filled it
//   a tuple                                           as the caller filled it, in each tensor that
//                                                     contributes
//   any, NULL too, of a forward that failed           none; returns the forward's error
//
// A loss of before tape_reset, or of another tape, is a failed CHECK. A second backward of the same
// output adds the same gradients again, as with PyTorch's retain_graph.
// Returns 0, or -1 with err filled. Source: torch.autograd.backward(tensors, grad_tensors).
int tape_backward(Tape *tape, Tensor *output, Error *err);
float *tape_make_grad(Tape *tape, Tensor *output);

// In TapeNode.backward, for each input: returns the memory of its gradient, or NULL if the input
// requires none (never of a node with one input: such a node would not be recorded). *accumulate:
// add to the contents (true) or overwrite them. Then call tape_grad_done.
float *tape_grad(Tape *tape, Tensor *input, bool *accumulate);
void tape_grad_done(Tape *tape, Tensor *input);
// For operations whose input gradient equals the output's or is computed in place (add, flatten,
// activations). If the input has no gradient yet, moves the memory of the output's gradient to the
// input and returns true; otherwise returns false and changes nothing. Then call tape_grad_done.
bool tape_grad_take(Tape *tape, TapeNode *node, Tensor *input);
// For operations that compute their input's gradient in the input's memory, in forward: makes that
// memory the gradient, in the input's type. The input must not have one yet. Then call
// tape_grad_done.
void tape_grad_in_place(Tensor *input, void *memory);
// Adds the output's gradient to the input's and calls tape_grad_done. may_take: the memory may be
// moved (tape_grad_take); otherwise it is copied.
void tape_pass_gradient(Tape *tape, TapeNode *node, Tensor *input, bool may_take);

#endif
