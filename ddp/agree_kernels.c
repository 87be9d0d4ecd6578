/* agree_kernels.c: gathers all ranks' trials; each rank derives the same choice from them. */
#include "ddp/agree_kernels.h"

#include "common/base/memory.h"
#include "common/nn/attention_choice.h"

int agree_kernels(Module *module, ProcessGroup *group, Error *err) {
    const AttentionChoices mine = attention_choices(module, NULL);
    if (mine.count == 0) return 0;
    AttentionChoices *all = memory_zalloc((size_t)pg_size(group) * sizeof *all);
    int status = pg_run(group, pg_all_gather(&mine, all, sizeof mine, PG_U8), err);
    if (status == 0) {
        attention_choices_join(all, pg_size(group), "rank", pg_rank(group) == 0);
        attention_choices_set(all, module, NULL);
    }
    free(all);
    return status;
}
