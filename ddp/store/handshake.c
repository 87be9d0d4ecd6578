/* handshake.c: see handshake.h. The only file that calls OpenSSL's libcrypto. */
#include "ddp/store/handshake.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>

enum { SIDE_BYTES = 16 }; // the side's name, padded with zeros

int store_nonce_make(uint8_t nonce[STORE_NONCE_BYTES], Error *err) {
    if (getrandom(nonce, STORE_NONCE_BYTES, 0) == STORE_NONCE_BYTES) return 0;
    return error_set(err, STATUS_FAILED, "no random numbers: %s", strerror(errno));
}

void store_proof_make(uint8_t proof[STORE_PROOF_BYTES], const char *token, StoreSide side,
                      const StoreNonces *nonces) {
    // Without cleanup at exit: the server's thread may be in libcrypto then.
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    uint8_t text[SIDE_BYTES + sizeof *nonces] = {0};
    const char *name = side == STORE_SIDE_CLIENT ? "ddpstor2 client" : "ddpstor2 server";
    memcpy(text, name, strlen(name)); // bytes, no string: NOLINT(*not-null-terminated-result)
    memcpy(text + SIDE_BYTES, nonces, sizeof *nonces);
    unsigned bytes = 0;
    const uint8_t *done =
        HMAC(EVP_sha256(), token, (int)strlen(token), text, sizeof text, proof, &bytes);
    CHECK(done && bytes == STORE_PROOF_BYTES, "libcrypto's HMAC-SHA-256 returned %u bytes, not %d",
          bytes, STORE_PROOF_BYTES);
}

bool store_proof_holds(const uint8_t proof[STORE_PROOF_BYTES], const char *token, StoreSide side,
                       const StoreNonces *nonces) {
    uint8_t wanted[STORE_PROOF_BYTES];
    store_proof_make(wanted, token, side, nonces);
    return CRYPTO_memcmp(proof, wanted, sizeof wanted) == 0;
}
