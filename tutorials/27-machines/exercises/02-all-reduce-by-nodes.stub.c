/* Your part: reduce in each node, all-reduce between the nodes, broadcast in each node. */
int all_reduce_by_nodes(ProcessGroup *node, ProcessGroup *firsts, float *numbers, size_t count,
                        Error *err) {
    (void)node, (void)firsts, (void)numbers, (void)count, (void)err;
    return 0;
}
