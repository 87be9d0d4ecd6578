/* flight_report.c: which rank departed first, and where.
 *
 *     DDPC_FLIGHT_DIR=dump ddprun --nproc-per-node 4 train_ddp ...
 *     flight_report dump
 *     group world: rank 2 did not start collective 212 all_reduce(F32, 1000, sum); ranks 0, 1, 3
 *     wait in it
 *
 * Exit status: 0 no rank departed, 1 one did, 2 there are no records.
 */
#include "common/base/log.h"
#include "common/base/options.h"
#include "ddp/group/flight_analysis.h"

int main(int argc, char **argv) {
    Error err = {0};
    Options options = {
        .program = "flight_report",
        .summary = "Says which rank departed first, by the flight records of all.\nThey are the "
                   "files flight_*.json in the folder DIR (or in this one), written when a group "
                   "breaks\nif DDPC_FLIGHT_DIR is set.\nExample: flight_report dump",
        .command = "[DIR]",
        .positional_max = 1};
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    const char *folder = options.positional_count == 1 ? options.positional[0] : ".";
    bool departed;
    if (flight_analyse(folder, stdout, &departed, &err) != 0) error_exit(&err);
    must_do(log_check_stdout(&err), &err);
    return departed ? STATUS_FAILED : STATUS_OK;
}
