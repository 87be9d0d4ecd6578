/* count.cpp: counts the program's calls of the GPU; with DDPC_EMULATOR_COUNT=1 it prints a table at
 * the end, on stderr. Copies from the host between two kernels are counted separately, because they
 * delay the kernels by more than a kernel's own time. The difference between runs of n and of n + 1
 * steps is the cost of one step: on a real GPU each line takes a few microseconds, of the host for
 * a call, of the GPU for a replay of a graph.
 */
#include <cstdio>
#include <cstring>
#include <string>

#include "emulator.h"

namespace emulator {

static const char FROM_HOST[] = "cudaMemcpyAsync (host to device)";

void count_task(Runtime &r, cudaStream_t stream, const Task &task) {
    if (!r.settings.count) return;
    stream->computes = stream->computes || task.kernel != nullptr;
    const bool between = stream->computes && strcmp(task.what, FROM_HOST) == 0;
    Count &count =
        r.counts[{task.kernel, between ? "a copy from the host between kernels" : task.what}];
    count.times++;
    count.bytes += task.bytes;
}

void count_call(Runtime &r, const char *name) {
    if (r.settings.count) r.counts[{nullptr, name}].times++;
}

void count_report(const Runtime &r) {
    std::map<std::string, Count> names; // one kernel may have several addresses
    for (auto &entry : r.counts) {
        Task task;
        task.kernel = entry.first.first;
        task.what = entry.first.second;
        Count &count = names[task_name(task)];
        count.times += entry.second.times;
        count.bytes += entry.second.bytes;
    }
    fprintf(stderr, "cuda_emulator: %8zu queues of a device\n", r.settings.queues);
    for (auto &entry : names) {
        fprintf(stderr, "cuda_emulator: %8ju x %s", uintmax_t{entry.second.times},
                entry.first.c_str());
        if (entry.second.bytes > 0) fprintf(stderr, ", %ju bytes", uintmax_t{entry.second.bytes});
        fputc('\n', stderr);
    }
}

} // namespace emulator
