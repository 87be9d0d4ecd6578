/* handshake.h: mutual authentication by the job's token, which is never sent.
 *
 * Each side sends a nonce, 32 random bytes that are used once, and a proof: HMAC-SHA-256 with the
 * token as key over the side's name and both nonces (RFC 2104; ISO 9798-4, mutual authentication in
 * three passes).
 *
 *   eavesdropping   the token cannot be computed from nonces and proofs
 *   replay          both nonces are fresh, so a recorded proof is invalid
 *   reflection      the side's name is in the proof, so it cannot be returned to its sender
 *
 * Not provided: the connection is neither encrypted nor signed afterwards, and a short token can be
 * guessed from a recorded proof. A token should have 128 random bits.
 */
#ifndef DDP_STORE_HANDSHAKE_H
#define DDP_STORE_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

enum { STORE_NONCE_BYTES = 32, STORE_PROOF_BYTES = 32 };

typedef enum StoreSide { STORE_SIDE_CLIENT, STORE_SIDE_SERVER } StoreSide;

typedef struct StoreNonces {
    uint8_t client[STORE_NONCE_BYTES];
    uint8_t server[STORE_NONCE_BYTES];
} StoreNonces;

// Fills a nonce with random bytes. 0, or -1 with err filled.
int store_nonce_make(uint8_t nonce[STORE_NONCE_BYTES], Error *err);

// Computes the proof of `side` for these nonces.
void store_proof_make(uint8_t proof[STORE_PROOF_BYTES], const char *token, StoreSide side,
                      const StoreNonces *nonces);

// Whether the proof is that of `side`; compared in constant time.
bool store_proof_holds(const uint8_t proof[STORE_PROOF_BYTES], const char *token, StoreSide side,
                       const StoreNonces *nonces);

#endif
