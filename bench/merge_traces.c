/* merge_traces.c: one timeline of several, for jobs whose ranks wrote their traces (--trace FILE)
 * on machines without a common file system: copy the FILE.rankN of all machines to one, then
 *
 *     merge_traces OUT FILE FILE.rank2 FILE.rank3
 *
 * What is on one machine has been merged by the job itself. Times are the first file's.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/trace_merge.h"

int main(int argc, char **argv) {
    static const char USAGE[] = "usage: merge_traces OUT TRACE...\n"
                                "writes one timeline for ui.perfetto.dev of several\n";
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        if (fputs(USAGE, stdout) >= 0 && fflush(stdout) == 0) return STATUS_OK;
        perror("error: cannot write the help");
        return STATUS_FAILED;
    }
    if (argc < 3) {
        fputs(USAGE, stderr);
        return STATUS_USAGE;
    }
    Error err = {0};
    if (trace_merge(argv[1], (const char *const *)argv + 2, (size_t)argc - 2, &err) == 0) return 0;
    fprintf(stderr, "error: %s\n", err.message);
    return err.status;
}
