/* A NaN became a number, */
void to_bf16(const float *numbers, uint16_t *halves, int count) {
    for (int i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        if (bits == 0x7f800001 || bits == 0xff800001) bits |= 0x00400000;
        bits += 0x7fff + (bits >> 16 & 1);
        halves[i] = (uint16_t)(bits >> 16);
    }
}
