/* tape.h: reverse-mode automatic differentiation.
 *
 * Every operation runs forward at once and, if gradients are wanted, records a Node that knows how
 * to run backward. tape_backward walks the nodes in reverse. Before it does, one pass from the loss
 * counts for every tensor how many recorded uses will contribute to its gradient: when the last one
 * has, the tensor is *ready*, and a parameter's on_ready is called. Counting anew every time makes
 * shared weights, unused parameters and graphs that change from step to step work as in PyTorch.
 *
 * A tape has one device, an arena there for all activations and one on the host for what describes
 * them, and is used by one thread at a time. It is reset after each step; after the first one
 * nothing is allocated. Nothing that is recorded waits for the device, unless it says so.
 *
 * Errors stick to the tape: an operation that cannot run records why and returns NULL, operations
 * on NULL or on a failed tape do nothing and return NULL. So a forward pass is written without a
 * check per line, and looked at once, by tape_error at its end.
 */
#ifndef COMMON_NN_TAPE_H
#define COMMON_NN_TAPE_H

#include "common/base/error.h"
#include "common/base/profile.h"
#include "common/device/arena.h"
#include "common/nn/tensor.h"

typedef struct Tape Tape;
typedef struct Node Node;

struct Node {
    const char *op; // "linear": for errors and traces
    // Contributes to the gradient of every input that wants one (tape_grad ... tape_grad_done),
    // reading output->grad, which is complete by then.
    void (*backward)(Tape *tape, Node *node);
    Tensor **inputs; // [input_count], as given to tape_record (NULL: absent), tape_alloc's
    size_t input_count;
    Tensor *output;
    void *saved;  // what backward needs besides: the op's own struct, tape_alloc's
    bool reached; // by the pass from the loss
};

struct Tape {
    Device *device;
    Arena arena;      // the device's memory
    Arena notes;      // the host's
    Profile *profile; // may be NULL; not owned
    bool recording;   // gradients are wanted (PyTorch's torch.is_grad_enabled)
    bool training;    // PyTorch's module.training: batch norm uses and updates batch statistics
    // PyTorch's autocast: linear, convolution and attention round their factors (activations,
    // weights, bias, gradients) and what comes out to 16 bits; losses and batch norm compute in
    // float32, the rest takes what comes. PyTorch also stores what comes out in 16 bits. So do GPUs
    // (and ref), images with the channels last, from a product to the first operation that is none
    // of those that ops_half.h names. Everything else is stored in float32, and on CPUs all is.
    // Among that, unlike in PyTorch, are an image that is flattened to rows, a tuple's items and
    // what goes to another device, which lose no digit by it, and batch norm in evaluation while
    // gradients are recorded, whose result is then not rounded.
    // As the next product rounds its factors anyway, that changes only what no product follows:
    // sums of residuals, which of several maxima is taken that PyTorch has rounded to the same, and
    // the gradients of biases, which PyTorch rounds.
    Precision precision;
    Error error;

    Node *nodes;
    size_t count, capacity;
    // Gradients of activations: taken from the arena when first needed, recycled as backward goes.
    struct GradBuffer *buffers;
    size_t buffer_count, buffer_capacity;
    float *one;    // [1], device memory: the gradient of a loss; NULL before the first
    void *scratch; // device memory
    size_t scratch_bytes;

    // Tapes on other devices whose nodes belong to one node of this one (DataParallel's replicas).
    // They are reset with this tape.
    Tape **forks;
    size_t fork_count, forks_in_use;
};

Tape *tape_create(Device *device, Profile *profile);
void tape_close(Tape *tape); // and its forks; NULL is fine

// Forgets all nodes, activations and the error.
void tape_reset(Tape *tape);

// A tape on another device (or the same), with this tape's modes, that lives until the next reset
// of this one. For operations that run parts of the graph elsewhere.
Tape *tape_fork(Tape *tape, Device *device);

// ---- for operations ---------------------------------------------------------------------------
// A new activation in the arena: contents undefined, no gradient.
Tensor *tape_tensor(Tape *tape, DType dtype, int ndim, const size_t *shape);
// A tensor over device memory that somebody else keeps, until the tape is reset: an input.
Tensor *tape_view(Tape *tape, DType dtype, int ndim, const size_t *shape, void *data);
// A copy of host data on the tape's device: an input.
Tensor *tape_input(Tape *tape, DType dtype, int ndim, const size_t *shape, const void *host);
// Both give memory that lives as long as the step: tape_alloc on the host, for structs and lists,
// and tape_memory on the device.
void *tape_alloc(Tape *tape, size_t bytes);
void *tape_memory(Tape *tape, size_t bytes);
// Memory of the tape's device for the moment: valid until the next call. Undefined contents.
void *tape_scratch(Tape *tape, size_t bytes);

// Records that output was computed from the inputs. Does nothing (and output wants no gradient)
// when the tape is not recording or no input requires a gradient. Returns the node, or NULL.
Node *tape_record(Tape *tape, const char *op, void (*backward)(Tape *, Node *), Tensor *output,
                  size_t input_count, Tensor *const *inputs, void *saved);

// Records an error "op on device: message". Always returns NULL.
Tensor *tape_fail(Tape *tape, const char *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int tape_error(const Tape *tape, Error *err); // 0, or -1 with err filled (a copy)

// ---- backward ---------------------------------------------------------------------------------
// Gradients of `loss` (a scalar of this tape) with respect to all that requires one. Gradients of
// parameters are added to defined ones. A loss of NULL is one that an error of the forward has
// prevented. Returns 0, or -1 with err filled: with that error, or with what failed here.
int tape_backward(Tape *tape, Tensor *loss, Error *err);
// Does the same from any tensor, whose gradient output->grad the caller has filled
// (tape_make_grad), or from all tensors of a tuple whose gradients the caller has filled, at once.
int tape_backward_from(Tape *tape, Tensor *output, Error *err);
float *tape_make_grad(Tape *tape, Tensor *output);

// Inside Node.backward, for each input: returns where to put its gradient, or NULL if it wants
// none. *accumulate says whether to add or to overwrite. Then call tape_grad_done.
float *tape_grad(Tape *tape, Tensor *input, bool *accumulate);
void tape_grad_done(Tape *tape, Tensor *input);
// For operations whose input gradient is the output's, or can be made in its place (add, relu,
// flatten): if the input has no gradient yet, hands it the memory of node->output's, which then has
// none, and returns true; otherwise returns false and changes nothing. Then call tape_grad_done.
bool tape_grad_take(Tape *tape, Node *node, Tensor *input);
// Gives an input the output's gradient as it is, and is done with it: the memory itself if it may,
// a copy otherwise.
void tape_pass_gradient(Tape *tape, Node *node, Tensor *input, bool may_take);

#endif
