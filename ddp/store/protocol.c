/* protocol.c: see protocol.h. Pure functions: bytes to numbers and back. */
#include "ddp/store/protocol.h"

#include <string.h>

void store_put_u32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

uint32_t store_read_u32(const uint8_t *at) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value |= (uint32_t)at[i] << (8 * i);
    return value;
}

void store_put_i64(uint8_t *at, int64_t value) {
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)((uint64_t)value >> (8 * i));
}

int64_t store_read_i64(const uint8_t *at) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value |= (uint64_t)at[i] << (8 * i);
    return (int64_t)value;
}

void store_write_hello(uint8_t hello[STORE_HELLO_BYTES], const uint8_t nonce[STORE_NONCE_BYTES]) {
    memcpy(hello, STORE_MAGIC, STORE_MAGIC_BYTES);
    memcpy(hello + STORE_MAGIC_BYTES, nonce, STORE_NONCE_BYTES);
}

bool store_read_hello(const uint8_t hello[STORE_HELLO_BYTES], uint8_t nonce[STORE_NONCE_BYTES]) {
    memcpy(nonce, hello + STORE_MAGIC_BYTES, STORE_NONCE_BYTES);
    return memcmp(hello, STORE_MAGIC, STORE_MAGIC_BYTES) == 0;
}

void store_write_request(uint8_t header[STORE_REQUEST_BYTES], const StoreRequest *request) {
    memset(header, 0, STORE_REQUEST_BYTES);
    store_put_u32(header, request->id);
    header[4] = request->op;
    header[5] = request->no_wait;
    store_put_u32(header + 8, request->key_bytes);
    store_put_u32(header + 12, request->value_bytes);
    store_put_u32(header + 16, request->expected_bytes);
}

bool store_read_request(const uint8_t header[STORE_REQUEST_BYTES], StoreRequest *request) {
    *request = (StoreRequest){
        .id = store_read_u32(header),
        .op = header[4],
        .no_wait = header[5] != 0,
        .key_bytes = store_read_u32(header + 8),
        .value_bytes = store_read_u32(header + 12),
        .expected_bytes = store_read_u32(header + 16),
    };
    if (request->op < STORE_OP_SET || request->op > STORE_OP_WAIT) return false;
    if (header[5] > 1 || header[6] != 0 || header[7] != 0) return false;
    if (request->key_bytes == 0 || request->key_bytes > STORE_KEY_MAX) return false;
    if (request->value_bytes > STORE_VALUE_MAX) return false;
    if (request->expected_bytes > STORE_VALUE_MAX) return false;
    if (request->op != STORE_OP_COMPARE_SET && request->expected_bytes != 0) return false;
    return request->op != STORE_OP_ADD || request->value_bytes == 8;
}
