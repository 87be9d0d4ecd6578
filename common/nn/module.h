/* module.h: a network as a tree of modules, with PyTorch's names and layouts.
 *
 * A Module has named parameters and buffers, named children, and a forward function. Walking the
 * tree (a module's own parameters, then its children's, in the order they were added) gives
 * PyTorch's registration order, and joining the names with dots gives PyTorch's names:
 * "layer1.0.bn1.weight". A file of tensors by these names loads with load_state_dict as it is.
 *
 * Wrappers (DataParallel, DistributedDataParallel) are Modules whose only child is the wrapped one;
 * they add no prefix to the names.
 */
#ifndef COMMON_NN_MODULE_H
#define COMMON_NN_MODULE_H

#include "common/nn/tensor.h"

enum { MODULE_NAME = 32, MODULE_PATH = 128 };

typedef struct Module Module;
typedef struct Tape Tape; // common/nn/tape.h

typedef struct ModuleTensor {
    char name[MODULE_NAME]; // "weight"
    Tensor tensor;
    bool owns_data, owns_grad; // the module frees this memory; a replica owns none
    struct ModuleTensor *tied; // a shared parameter: the owner's entry; otherwise NULL
    int ties;                  // the number of parameters that are tied to this one
} ModuleTensor;

struct Module {
    const char *type;       // "Linear"
    char name[MODULE_NAME]; // in its parent: "fc1"; "" for a wrapped module, which adds no name
    Tensor *(*forward)(Module *self, Tape *tape, Tensor *x);
    void (*destroy)(Module *self); // frees `state`; may be NULL
    size_t config[6];              // arguments of the type's forward: sizes, stride, padding, ...
    void *state;                   // a wrapper's own struct

    ModuleTensor parameters[2], buffers[3];
    int parameter_count, buffer_count;
    Module **children;
    int child_count;
    bool owned; // is a parent's child
};

// Creates a module without children; allocates no device memory. forward NULL: a container, as
// PyTorch's ModuleList, whose parent reads its tensors or runs its children; module_forward of it
// is a failed CHECK.
Module *module_create(const char *type, Tensor *(*forward)(Module *, Tape *, Tensor *));
// Frees the tree and its tensors' memory. Of a child, which its parent frees, a failed CHECK.
void module_close(Module *module);
// Adds a child and returns it; the parent owns it from now on, and no other module may. The name
// has no dot, and no other child has it.
Module *module_add(Module *parent, const char *name, Module *child);
Module *module_child(const Module *parent, const char *name); // CHECKs that it exists
// Adds a tensor. The module allocates and owns its data (and, for a parameter, its gradient) in
// device memory.
Tensor *module_add_parameter(Module *module, Device *device, const char *name, int ndim,
                             const size_t *shape);
Tensor *module_add_buffer(Module *module, Device *device, const char *name, DType dtype, int ndim,
                          const size_t *shape);

// Makes a parameter the same tensor as another module's, as PyTorch's `b.weight = a.weight` does,
// and frees its own memory. Preconditions: no wrapper exists yet; the owner outlives the module and
// is never tied itself.
void module_tie_parameter(Module *module, const char *name, Module *owner, const char *owner_name);
// Parameter i of the module itself, not of its children.
static inline Tensor *module_parameter(Module *module, int i) {
    ModuleTensor *entry = &module->parameters[i];
    return entry->tied ? &entry->tied->tensor : &entry->tensor;
}

// Runs the module. x and the result are tensors of the tape, or tuples (nn/tuple.h) where the
// module takes or returns several; a module without inputs takes a tuple of no items. Returns NULL
// after an error (see tape.h), also after an earlier one, so forward functions never see NULL.
Tensor *module_forward(Module *module, Tape *tape, Tensor *x);

// ---- traversal ----------------------------------------------------------------------------------
typedef struct NamedTensor {
    char name[MODULE_PATH]; // "layer1.0.conv1.weight"
    Tensor *tensor;
} NamedTensor;

typedef struct NamedTensors {
    NamedTensor *items;
    size_t count;
} NamedTensors;

enum {
    MODULE_PARAMETERS = 1,
    MODULE_BUFFERS = 2,
    MODULE_STATE = 3,
    MODULE_ALL_NAMES = 4, // added to one of the others
};

// The tensors of a tree, in registration order. A shared parameter is listed once, by the first of
// its names, as by PyTorch's named_parameters; with MODULE_ALL_NAMES under each of its names, as in
// PyTorch's state_dict, whose order MODULE_STATE has. Free with named_tensors_free.
NamedTensors module_tensors(Module *module, int which);
void named_tensors_free(NamedTensors *tensors);
// The elements of module_tensors; of a shard, those of the whole tensor.
size_t module_count(Module *module, int which);
// Whether the module or one below it is of this type.
bool module_has_type(const Module *module, const char *type);

void module_zero_grad(Module *module); // every parameter's gradient becomes None

// Returns a tree of the same shape whose tensors are on another device and have no memory (data and
// grad NULL); DataParallel sets it in each forward. requires_grad is copied, hooks are not;
// parameters that are one tensor in the module are one in the replica.
Module *module_replica(const Module *module, Device *device);

// Frees these parameters' gradient memory, for a caller that sets tensor->grad to its own memory
// (DDP's buckets).
void module_release_grads(Module *module, const NamedTensors *which);
// The reverse: allocates every gradient without memory, as None.
void module_own_grads(Module *module);
// Frees the data of these parameters, for a caller that sets tensor->data.
void module_release_data(Module *module, const NamedTensors *which);
// Whether all modules that share this parameter of the tree are in the tree.
bool module_holds_ties(Module *module, const Tensor *parameter);

#endif
