/* Your part: find the collective, then the rank. */
Verdict who_departed(const LastSeen *ranks, int world) {
    (void)ranks, (void)world;
    return (Verdict){TROUBLE_NONE, -1, 0};
}
