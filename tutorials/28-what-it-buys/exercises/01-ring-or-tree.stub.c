/* Your part: the two times. */
double ring_s(LinkCosts link, int devices, double bytes) {
    (void)link, (void)devices, (void)bytes;
    return 0;
}

double tree_s(LinkCosts link, int devices, double bytes) {
    (void)link, (void)devices, (void)bytes;
    return 0;
}

bool tree_is_faster(LinkCosts link, int devices, double bytes) {
    (void)link, (void)devices, (void)bytes;
    return false;
}
