/* Every message has its latency, and there are 5 of them each way. */
double break_even_bits_per_s(double compute_s, double bytes, int messages, double latency_s) {
    (void)messages;
    double left_s = compute_s - 2 * latency_s; // for the bytes, there and back
    return left_s > 0 ? 8 * 2 * bytes / left_s : INFINITY;
}
