/* A float counts to 16,777,216 only. */
void order_of_sum(size_t place, size_t count, int world, int *order) {
    float part = (float)count / (float)world;
    size_t length = (size_t)part;
    if ((float)length < part) length++;
    const int chunk = (int)(place / length);
    for (int i = 0; i < world; i++) order[i] = (chunk + i) % world;
}
