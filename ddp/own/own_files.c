/* own_files.c: the options --wrapper and --all-reduce, and the load of an all-reduce. */
#include "common/own/own_file.h"
#include "ddp/group/own_sum.h"
#include "ddp/own/own_all_reduce.h"
#include "ddp/own/own_ddp.h"
#include "ddp/own/own_wrapper.h"

void own_files_options(Options *options, OwnFiles *files) {
    options_add_string(options, "wrapper", &files->wrapper, "FILE",
                       "train with a wrapper of your own, C source or a shared object: "
                       "ddp/own/own_ddp.h");
    options_add_string(options, "all-reduce", &files->all_reduce, "FILE",
                       "sum gradients by an all-reduce of your own: ddp/own/own_all_reduce.h");
}

// Rejects options without effect beside --wrapper.
static int check_options(const Options *options, size_t first_feature, Error *err) {
    static const char WRAPPER[] = "--wrapper FILE decides that itself";
    const OptionUse uses[] = {
        {"no-overlap", false, WRAPPER},
        {"no-broadcast-buffers", false, WRAPPER},
        {"all-reduce", false, "--wrapper FILE starts its own all-reduces"},
        {"cuda-graph", false, "a replayed step would not call --wrapper's functions"},
    };
    if (options_check_used(options, uses, sizeof uses / sizeof *uses, err) != 0) return -1;
    for (size_t i = first_feature; i < options->count; i++) {
        const OptionUse feature = {options->table[i].name, false,
                                   "it is a feature of the built-in wrapper, which --wrapper FILE "
                                   "replaces"};
        if (options_check_used(options, &feature, 1, err) != 0) return -1;
    }
    return 0;
}

int own_files_check(OwnFiles *files, const Options *options, size_t first_feature, Error *err) {
    if (files->wrapper && check_options(options, first_feature, err) != 0) return -1;
    if (files->wrapper)
        files->ddp = own_file_load(files->wrapper, "own_ddp", OWN_DDP_VERSION, sizeof(OwnDdp), err);
    if (files->all_reduce)
        files->sum = own_file_load(files->all_reduce, "own_all_reduce", OWN_ALL_REDUCE_VERSION,
                                   sizeof(OwnAllReduce), err);
    return !files->wrapper == !files->ddp && !files->all_reduce == !files->sum ? 0 : -1;
}

int own_all_reduce_use(const OwnFiles *files, ProcessGroup *group, Error *err) {
    return files->sum ? pg_set_sum(group, files->sum->sum, err) : 0;
}
