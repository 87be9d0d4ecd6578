/* The messages pay their latency there and back, and here it is paid once. */
double break_even_bits_per_s(double compute_s, double bytes, int messages, double latency_s) {
    double left_s = compute_s - messages * latency_s; // for the bytes, there and back
    return left_s > 0 ? 8 * 2 * bytes / left_s : INFINITY;
}
