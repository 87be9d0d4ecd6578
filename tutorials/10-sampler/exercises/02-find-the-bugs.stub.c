/* The script. Your part: find and correct its mistakes. */
int script_begin(Script *script, Error *err) {
    (void)err;
    script->seed = script->clock;
    script->find_unused_parameters = true;
    return 0;
}

int script_resume(Script *script, Error *err) {
    (void)err;
    if (pg_rank(script->group) == 0) {
        script->epoch = script->saved_epoch;
        script->weight = script->saved_weight;
    }
    return 0;
}

int script_test(Script *script, Error *err) {
    const size_t world = (size_t)pg_size(script->group);
    size_t right = 0, tested = 0;
    (void)err;
    if (pg_rank(script->group) > 0) return 0;
    for (size_t i = 0; i < script->test_count; i += world) { // the sampler gives rank 0 these
        right += script->is_right(script, i);
        tested++;
    }
    script->accuracy = (double)right / (double)tested;
    return 0;
}
