/* The short last batch is a step, too: round up. */
Worksheet fill_worksheet(const Job *job) {
    const size_t ranks = (size_t)job->world;
    const size_t own = (job->samples + ranks - 1) / ranks;
    Worksheet sheet = {.global_batch = ranks * job->batch_per_rank,
                       .steps_per_epoch = own / job->batch_per_rank};
    sheet.total_steps = job->epochs * sheet.steps_per_epoch;
    sheet.lr = job->base_lr * (double)sheet.global_batch / (double)job->base_batch;
    return sheet;
}
