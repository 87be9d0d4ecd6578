/* merge_traces.c: one timeline of several, for jobs whose ranks wrote their traces (--trace FILE)
 * on machines without a common file system: copy the FILE.rankN of all machines to one, then
 *
 *     merge_traces OUT FILE FILE.rank2 FILE.rank3
 *
 * The job itself merges the traces of one machine. Times are the first file's.
 */
#include "common/base/options.h"
#include "common/base/trace.h"

int main(int argc, char **argv) {
    Options options = {
        .program = "merge_traces",
        .summary =
            "Writes one timeline of several, for ui.perfetto.dev.\n\n"
            "Ranks on machines without a common disk leave their own parts of a trace:\n"
            "FILE.rank2 and so on, beside the --trace FILE of the first machine, which the job\n"
            "has merged itself. Copy them to one machine. Times are the first trace's.",
        .takes_command = true,
        .command = "OUT TRACE ..."};
    Error err = {0};
    must_do(options_parse(&options, argc, argv, &err), &err);
    if (argc - options.rest < 2)
        must_do(error_set(&err, STATUS_USAGE, "OUT and a trace are needed (see --help)"), &err);
    const char *const *names = (const char *const *)argv + options.rest;
    must_do(trace_merge(names[0], names + 1, (size_t)(argc - options.rest - 1), &err), &err);
    return STATUS_OK;
}
