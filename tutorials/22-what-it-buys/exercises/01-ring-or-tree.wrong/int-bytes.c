/* 10,000,000,000 bytes take 1e+10 s */
double ring_s(LinkCosts link, int devices, double bytes) {
    return 2 * (devices - 1) * (link.latency_s + bytes / devices / link.bytes_per_s);
}

double tree_s(LinkCosts link, int devices, double bytes) {
    int levels = 0;
    int whole = (int)bytes;
    while ((1 << levels) < devices) levels++;
    return 2 * levels * (link.latency_s + whole / link.bytes_per_s);
}

bool tree_is_faster(LinkCosts link, int devices, double bytes) {
    return tree_s(link, devices, bytes) < ring_s(link, devices, bytes);
}
