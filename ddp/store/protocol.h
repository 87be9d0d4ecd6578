/* protocol.h: the messages between the store's client and server.
 *
 * First the handshake (handshake.h): four messages of fixed size. The magic contains the version of
 * the protocol.
 *
 *   client   magic 8 | client's nonce 32
 *   server   magic 8 | server's nonce 32
 *   client   client's proof 32
 *   server   magic 8 | status u32 | server's proof 32 (zeros unless the status is STORE_DONE)
 *
 * Then requests and replies:
 *
 *   request  id u32 | op u8 | no_wait u8 | 0 u16 | key_bytes u32 | value_bytes u32
 *            | expected_bytes u32 | key | value | expected
 *   reply    id u32 | status u32 | value_bytes u32 | value
 *
 * Integers are little-endian. The lengths are validated before any byte behind them is stored. A
 * reply carries its request's id, so that after a time-out the client recognises a late reply; its
 * next request replaces the pending one.
 */
#ifndef DDP_STORE_PROTOCOL_H
#define DDP_STORE_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ddp/store/handshake.h"
#include "ddp/store/store_limits.h"

#define STORE_MAGIC "ddpstor2"

enum {
    STORE_MAGIC_BYTES = 8,
    STORE_HELLO_BYTES = STORE_MAGIC_BYTES + STORE_NONCE_BYTES, // the first message of either side
    STORE_ANSWER_BYTES = STORE_MAGIC_BYTES + 4 + STORE_PROOF_BYTES,
    STORE_REQUEST_BYTES = 20,
    STORE_REPLY_BYTES = 12,
    STORE_MESSAGE_MAX = STORE_REQUEST_BYTES + STORE_KEY_MAX + 2 * STORE_VALUE_MAX,
};

typedef enum StoreOp {
    STORE_OP_SET = 1,     // key, value
    STORE_OP_GET,         // key -> value; waits for the key unless no_wait
    STORE_OP_ADD,         // key, value = the amount, 8 bytes -> value = the sum, 8 bytes
    STORE_OP_COMPARE_SET, // key, value = desired, expected -> value = the key's value
    STORE_OP_WAIT,        // key; waits for the key unless no_wait
} StoreOp;

typedef enum StoreStatus {
    STORE_DONE,
    STORE_MISSING,     // no such key
    STORE_NOT_INTEGER, // the key holds no integer, or the sum overflows
    STORE_FULL,        // the table's limit is reached
    STORE_BAD_REQUEST, // the server closes the connection afterwards
    STORE_WRONG_TOKEN, // reply to a client's proof
    STORE_NO_ROOM,     // reply to a proof: too many clients
} StoreStatus;

// A byte string, not owned.
typedef struct StoreBytes {
    const uint8_t *data;
    size_t bytes;
} StoreBytes;

typedef struct StoreRequest {
    uint32_t id;
    uint8_t op;
    bool no_wait;
    uint32_t key_bytes, value_bytes, expected_bytes;
} StoreRequest;

void store_put_u32(uint8_t *at, uint32_t value);
uint32_t store_read_u32(const uint8_t *at);
void store_put_i64(uint8_t *at, int64_t value);
int64_t store_read_i64(const uint8_t *at);

void store_write_hello(uint8_t hello[STORE_HELLO_BYTES], const uint8_t nonce[STORE_NONCE_BYTES]);
// False: not the magic of this version.
bool store_read_hello(const uint8_t hello[STORE_HELLO_BYTES], uint8_t nonce[STORE_NONCE_BYTES]);

void store_write_request(uint8_t header[STORE_REQUEST_BYTES], const StoreRequest *request);
// False: the header violates the protocol or a limit.
bool store_read_request(const uint8_t header[STORE_REQUEST_BYTES], StoreRequest *request);

#endif
