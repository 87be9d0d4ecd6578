/* The weights go there and the gradients come back: twice the bytes. */
double break_even_bits_per_s(double compute_s, double bytes, int messages, double latency_s) {
    double left_s = compute_s - 2 * messages * latency_s; // for the bytes, there and back
    return left_s > 0 ? 8 * bytes / left_s : INFINITY;
}
