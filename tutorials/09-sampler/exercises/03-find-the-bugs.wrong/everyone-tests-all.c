/* Every rank tests the whole test set: the work is done W times. */
int script_begin(Script *script, Error *err) {
    (void)err;
    script->seed = script->seed_option;
    script->find_unused_parameters = script->some_weights_may_rest;
    return 0;
}

int script_resume(Script *script, Error *err) {
    (void)err;
    script->epoch = script->saved_epoch;
    script->weight = script->saved_weight;
    return 0;
}

int script_test(Script *script, Error *err) {
    (void)err;
    int64_t right = 0;
    for (size_t i = 0; i < script->test_count; i++) right += script->is_right(script, i);
    script->accuracy = (double)right / (double)script->test_count;
    return 0;
}
