/* handshake.h: how two processes show each other that they know the job's token, without
 * sending it.
 *
 * Each side makes a nonce, 32 random bytes that are used once. A proof is HMAC-SHA-256 with the
 * token as its key, over the name of the side that proves and both nonces (RFC 2104; the pattern
 * is ISO 9798-4's mutual authentication in three passes). Who listens sees nonces and proofs, from
 * which the token cannot be computed. Because both nonces are fresh, a recorded proof is worth
 * nothing later; because the side's name is in it, a proof cannot be sent back to who made it.
 *
 * What this does not give: what follows on the connection is neither encrypted nor signed, and a
 * short token can be guessed from a recorded proof. The token should be 128 random bits.
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

// Fills a nonce from the system's random numbers.
int store_nonce_make(uint8_t nonce[STORE_NONCE_BYTES], Error *err);

// The proof that `side` sends in the connection of these nonces.
void store_proof_make(uint8_t proof[STORE_PROOF_BYTES], const char *token, StoreSide side,
                      const StoreNonces *nonces);

// Is this the proof that `side` had to send? The comparison takes the same time whatever differs.
bool store_proof_holds(const uint8_t proof[STORE_PROOF_BYTES], const char *token, StoreSide side,
                       const StoreNonces *nonces);

#endif
