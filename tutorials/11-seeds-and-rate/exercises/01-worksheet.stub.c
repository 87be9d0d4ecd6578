/* Your part: this stub has the settings of one device. */
Worksheet fill_worksheet(const Job *job) {
    return (Worksheet){.global_batch = job->batch_per_rank,
                       .steps_per_epoch = job->samples / job->batch_per_rank,
                       .total_steps = job->epochs * job->samples / job->batch_per_rank,
                       .lr = job->base_lr};
}
