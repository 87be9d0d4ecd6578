/* A carry runs from the mantissa into the exponent. */
void to_bf16(const float *numbers, uint16_t *halves, int count) {
    for (int i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        if (numbers[i] != numbers[i]) {
            halves[i] = 0x7fc0;
            continue;
        }
        uint32_t low = bits & 0xffff, high = bits >> 16;
        if (low > 0x8000 || (low == 0x8000 && (high & 1) && high != 0x7f7f)) high++;
        halves[i] = (uint16_t)high;
    }
}
