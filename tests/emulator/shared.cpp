/* shared.cpp: fills shared memory with NaN (0xff) before each block, so that a read before a write
 * does not see the previous block's values.
 *
 * Which __shared__ variables a kernel uses is unknown: inlined functions may use any of its
 * object's, and filling all of them (1 MB) before each block would be slow. So all are filled
 * before the first and the last block of a kernel's first launch, and those that the block has
 * changed are taken to be the kernel's. A variable that only other blocks write is not filled.
 */
#include <algorithm>
#include <cstring>

#include "emulator.h"

extern "C" void *__tls_get_addr(size_t *index); // of the C library: {module, offset}

namespace emulator {

enum : unsigned char { UNWRITTEN = 0xff };

struct SharedUse {
    std::vector<SharedVariable> object, own; // object: empty after the first launch
    bool learned = false;
};

char *SharedVariable::memory() const {
    size_t index[] = {module, offset};
    return static_cast<char *>(__tls_get_addr(index));
}

// Called with Runtime's lock held, as are all functions that run kernels.
static SharedUse &use_of(const void *kernel) {
    static auto *uses = new std::map<const void *, SharedUse>;
    auto found = uses->find(kernel);
    if (found == uses->end()) found = uses->insert({kernel, {shared_variables(kernel), {}}}).first;
    return found->second;
}

static bool is_written(const SharedVariable &variable) {
    const auto *memory = reinterpret_cast<unsigned char *>(variable.memory());
    return memory[0] != UNWRITTEN || memcmp(memory, memory + 1, variable.bytes - 1) != 0;
}

void shared_before_block(const void *kernel, bool is_edge) {
    SharedUse &use = use_of(kernel);
    for (auto &variable : use.own) memset(variable.memory(), UNWRITTEN, variable.bytes);
    if (use.learned || !is_edge) return;
    for (auto &variable : use.object) memset(variable.memory(), UNWRITTEN, variable.bytes);
}

void shared_after_block(const void *kernel, bool is_edge) {
    SharedUse &use = use_of(kernel);
    if (use.learned || !is_edge) return;
    auto first = std::partition(use.object.begin(), use.object.end(),
                                [](auto &variable) { return !is_written(variable); });
    use.own.insert(use.own.end(), first, use.object.end());
    use.object.erase(first, use.object.end());
}

void shared_after_kernel(const void *kernel) {
    SharedUse &use = use_of(kernel);
    use.learned = true;
    use.object = {};
}

} // namespace emulator
