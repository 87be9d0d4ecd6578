/* test_store_handshake.c: the store's handshake against an attacker who records, reflects or
 * replays it: no message reveals the token, and each side refuses a peer without the token.
 */
#include "tests/rigs/store_rig.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "common/base/sync.h"

// ---- At the end of the process ---

static void shake_hands_alone(void) {
    const StoreNonces nonces = {.client = "a nonce"};
    uint8_t proof[STORE_PROOF_BYTES];
    store_proof_make(proof, TOKEN, STORE_SIDE_CLIENT, &nonces);
    if (!store_proof_holds(proof, TOKEN, STORE_SIDE_CLIENT, &nonces)) _exit(1);
}

// libcrypto can be used until the process has ended: its functions for exit, if it registered any,
// would run before one that was registered earlier. (To run before any other test has called it.)
static void test_handshake_during_exit(void **state) {
    (void)state;
    int status = -1;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        if (atexit(shake_hands_alone) != 0) _exit(1);
        shake_hands_alone();
        exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

// ---- An attacker at the master's address ---

typedef enum Trick {
    RELAY,   // forwards all bytes between client and store
    MAKE_UP, // a store that does not know the token
    REFLECT, // returns the sender's own bytes
    REPLAY,  // sends a recorded store's bytes
    STALL,   // sends nothing after the first answer
    FOREIGN, // sends `said` bytes of another protocol
    NEWER,   // a store that answers with a status of a later version
} Trick;

typedef struct Record {
    uint8_t data[4096];
    size_t bytes;
} Record;

typedef struct Listener {
    Trick trick;
    int port, listener;
    int store_port;   // RELAY
    SyncWord allowed; // RELAY: limit of forwarded bytes from the store; 0: none
    size_t passed;
    size_t spoiled;           // RELAY: index of the store's byte that is replaced by 0xff; 0: none
    Record client, server;    // bytes sent by each side
    const Record *old_server; // REPLAY
    size_t said;              // FOREIGN: bytes sent
    bool left;                // FOREIGN: the client has closed within LONG_S
    pthread_t thread;
} Listener;

// Appends received bytes. Returns false if the peer has closed.
static bool record(int from, Record *record) {
    ssize_t n = read(from, record->data + record->bytes, sizeof record->data - record->bytes);
    if (n > 0) record->bytes += (size_t)n;
    return n > 0;
}

static void pass_on(Listener *l, int client) {
    size_t end = l->server.bytes, allowed = sync_load(&l->allowed);
    if (allowed > 0 && allowed < end) end = allowed;
    if (l->spoiled > 0 && l->spoiled < end) l->server.data[l->spoiled] = 0xff;
    if (end > l->passed) raw_send(client, l->server.data + l->passed, end - l->passed);
    l->passed = end;
}

static void relay_all(Listener *l, int client) {
    int store = raw_connect(l->store_port);
    struct pollfd ends[] = {{.fd = client, .events = POLLIN}, {.fd = store, .events = POLLIN}};
    uint64_t deadline = clock_ns() + (uint64_t)LONG_S * 1000000000;
    for (bool open = true; open && clock_ns() < deadline;) {
        size_t heard = l->client.bytes;
        if (poll(ends, 2, 5) < 0) break;
        if (ends[0].revents) open = record(client, &l->client);
        if (ends[0].revents && open)
            raw_send(store, l->client.data + heard, l->client.bytes - heard);
        if (open && ends[1].revents) open = record(store, &l->server);
        if (open) pass_on(l, client);
    }
    close(store);
}

static void hear(Listener *l, int client, size_t bytes) {
    if (raw_receive(client, l->client.data + l->client.bytes, bytes) == NET_DONE) {
        l->client.bytes += bytes;
    }
}

static void deceive(Listener *l, int client) {
    uint8_t hello[STORE_HELLO_BYTES], answer[STORE_ANSWER_BYTES] = STORE_MAGIC; // status STORE_DONE
    const uint8_t nonce[STORE_NONCE_BYTES] = "made up";
    hear(l, client, STORE_HELLO_BYTES);
    if (l->trick == FOREIGN) {
        raw_send(client, "SSH-2.0-OpenSSH", l->said);
        l->left = raw_receive(client, hello, 1) == NET_CLOSED;
        return;
    }
    store_write_hello(hello, nonce);
    if (l->trick == REFLECT) memcpy(hello, l->client.data, sizeof hello);
    if (l->trick == REPLAY) memcpy(hello, l->old_server->data, sizeof hello);
    raw_send(client, hello, sizeof hello);

    hear(l, client, STORE_PROOF_BYTES);
    if (l->trick == STALL) {
        (void)raw_receive(client, hello, 1); // until the client closes
        return;
    }
    const uint8_t *heard = l->client.data + STORE_HELLO_BYTES;
    if (l->trick == REFLECT) memcpy(answer + STORE_MAGIC_BYTES + 4, heard, STORE_PROOF_BYTES);
    if (l->trick == REPLAY) memcpy(answer, l->old_server->data + sizeof hello, sizeof answer);
    if (l->trick == NEWER) store_put_u32(answer + STORE_MAGIC_BYTES, STORE_BAD_REQUEST + 1000);
    raw_send(client, answer, sizeof answer);
}

static void *listen_once(void *argument) {
    Listener *l = argument;
    struct pollfd entry = {.fd = l->listener, .events = POLLIN};
    int client = poll(&entry, 1, LONG_S * 1000) > 0 ? net_accept(l->listener) : -1;
    if (client < 0) return NULL;
    if (l->trick == RELAY) {
        relay_all(l, client);
    } else {
        deceive(l, client);
    }
    close(client);
    return NULL;
}

static void listener_start(Listener *l) {
    Error err = {0};
    l->listener = net_listen(HOST, 0, &err);
    if (l->listener < 0) fail_msg("%s", err.message);
    l->port = net_port(l->listener);
    assert_int_equal(pthread_create(&l->thread, NULL, listen_once, l), 0);
}

static void listener_end(Listener *l) {
    pthread_join(l->thread, NULL);
    close(l->listener);
}

static void assert_not_told(const Record *record, const char *secret) {
    assert_true(record->bytes > 0);
    assert_null(memmem(record->data, record->bytes, secret, strlen(secret)));
}

// Against this trick a client fails with `message` and `status`.
static void assert_refused(Listener *l, double timeout_s, int status, const char *message) {
    Error err = {0};
    listener_start(l);
    assert_null(store_connect(HOST, l->port, TOKEN, timeout_s, &err));
    listener_end(l);
    assert_int_equal(err.status, status);
    check_message(&err, message);
    assert_not_told(&l->client, TOKEN);
}

// ---- Recording

// Records a complete conversation between a client and a store.
static void record_conversation(const Served *served, Listener *l) {
    Error err = {0};
    *l = (Listener){.trick = RELAY, .store_port = served->port};
    listener_start(l);
    Store *store = new_client(l->port);
    assert_int_equal(store_set(store, "k", "v", 1, &err), 0);
    store_close(store);
    listener_end(l);
    assert_holds(served->store, "k", "v");
}

static void test_token_is_never_sent(void **state) {
    Listener first, second;
    record_conversation(*state, &first);
    record_conversation(*state, &second);
    assert_not_told(&first.client, TOKEN);
    assert_not_told(&first.server, TOKEN);
    assert_in_range(first.client.bytes, STORE_HELLO_BYTES + STORE_PROOF_BYTES, 4096);
    // Only the magic bytes repeat in the next handshake.
    for (size_t i = STORE_MAGIC_BYTES; i + 16 <= STORE_HELLO_BYTES + STORE_PROOF_BYTES; i++) {
        const uint8_t *said = first.client.data + i;
        assert_null(memmem(second.client.data, second.client.bytes, said, 16));
    }
}

// Expected value from Python's hmac: the first 8 bytes of HMAC-SHA-256 over the side, padded to 16
// bytes, and both nonces.
static void test_proof_is_hmac_sha256(void **state) {
    (void)state;
    const uint8_t client[] = {0x71, 0x1b, 0x7d, 0x82, 0x5b, 0x8c, 0xfa, 0x70};
    const uint8_t server[] = {0x71, 0x95, 0xb3, 0x4d, 0xe0, 0x5f, 0xb4, 0xc1};
    StoreNonces nonces;
    uint8_t proof[STORE_PROOF_BYTES];
    for (uint8_t i = 0; i < STORE_NONCE_BYTES; i++) {
        nonces.client[i] = i;
        nonces.server[i] = (uint8_t)(100 + i);
    }
    store_proof_make(proof, TOKEN, STORE_SIDE_CLIENT, &nonces);
    assert_memory_equal(proof, client, sizeof client);
    assert_false(store_proof_holds(proof, TOKEN, STORE_SIDE_SERVER, &nonces));
    assert_false(store_proof_holds(proof, "another token", STORE_SIDE_CLIENT, &nonces));
    for (size_t bit = 0; bit < 8 * sizeof proof; bit++) { // each flipped bit is detected
        proof[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(store_proof_holds(proof, TOKEN, STORE_SIDE_CLIENT, &nonces));
        proof[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(store_proof_holds(proof, TOKEN, STORE_SIDE_CLIENT, &nonces));
    store_proof_make(proof, TOKEN, STORE_SIDE_SERVER, &nonces);
    assert_memory_equal(proof, server, sizeof server);
}

// ---- False stores

static void test_store_without_token(void **state) {
    (void)state;
    Listener l = {.trick = MAKE_UP};
    assert_refused(&l, LONG_S, STATUS_USAGE, "does not know this job's token (DDPRUN_TOKEN)");
}

static void test_reflection(void **state) {
    (void)state;
    Listener l = {.trick = REFLECT};
    assert_refused(&l, LONG_S, STATUS_USAGE, "does not know this job's token (DDPRUN_TOKEN)");
}

static void test_replay_to_client(void **state) {
    Listener old;
    record_conversation(*state, &old);
    Listener l = {.trick = REPLAY, .old_server = &old.server};
    assert_refused(&l, LONG_S, STATUS_USAGE, "does not know this job's token (DDPRUN_TOKEN)");
}

static void test_silence_has_a_deadline(void **state) {
    (void)state;
    Listener l = {.trick = STALL};
    assert_refused(&l, 0.3, STATUS_FAILED, "accepts connections but does not answer");
}

// A server of another protocol is an error at once; a peer that has sent too few bytes to tell is
// retried.
static void test_another_server(void **state) {
    (void)state;
    for (size_t said = STORE_MAGIC_BYTES - 1; said <= STORE_MAGIC_BYTES + 1; said++) {
        Listener l = {.trick = FOREIGN, .said = said};
        if (said < STORE_MAGIC_BYTES)
            assert_refused(&l, 0.1, STATUS_FAILED, "no store within 0.1 s");
        else
            assert_refused(&l, 3 * LONG_S, STATUS_USAGE, "is not a store");
        assert_true(l.left); // and sent no proof
    }
    Listener newer = {.trick = NEWER};
    assert_refused(&newer, LONG_S, STATUS_USAGE, "is not a store");
}

// ---- A slow store

enum { GREETING = STORE_HELLO_BYTES + STORE_ANSWER_BYTES };

// A timeout within a reply's header: the next call reads the rest of it, and its own reply.
static void test_timeout_inside_a_header(void **state) {
    Served *served = *state;
    for (size_t cut = 1; cut < STORE_REPLY_BYTES; cut++) {
        Error err = {0};
        Listener l = {
            .trick = RELAY, .store_port = served->port, .allowed = {GREETING + (uint32_t)cut}};
        assert_int_equal(store_set(served->store, "k", "value", 5, &err), 0);
        listener_start(&l);
        Store *store = new_client(l.port);
        assert_int_equal(store_wait(store, "k", 0.02, &err), -1);
        check_message(&err, "timed out after 0.02 s waiting for key 'k'");
        err = (Error){0};
        assert_int_equal(store_wait(store, "k", 0.02, &err), -1); // a second time
        sync_store(&l.allowed, 0);
        assert_holds(store, "k", "value");
        store_close(store);
        listener_end(&l);
    }
}

// A timeout within a value: the rest would be taken for a header, so the connection is not used
// again.
static void test_timeout_inside_a_value(void **state) {
    Served *served = *state;
    for (size_t cut = 0; cut < 5; cut += 4) {
        Error err = {0};
        char value[8];
        size_t bytes = sizeof value;
        Listener l = {.trick = RELAY,
                      .store_port = served->port,
                      .allowed = {GREETING + STORE_REPLY_BYTES + (uint32_t)cut}};
        assert_int_equal(store_set(served->store, "k", "value", 5, &err), 0);
        listener_start(&l);
        Store *store = store_connect(HOST, l.port, TOKEN, 1.5, &err);
        assert_non_null(store);
        assert_int_equal(store_get(store, "k", value, &bytes, &err), -1);
        check_message(&err, "timed out after 1.5 s waiting for key 'k'");
        sync_store(&l.allowed, 0);
        err = (Error){0};
        assert_int_equal(store_get(store, "k", value, &bytes, &err), -1);
        check_message(&err, "is broken");
        store_close(store);
        listener_end(&l);
        assert_alive(served);
    }
}

// A reply whose header announces more than a value's maximum is an error; its value is not read.
static void test_reply_of_any_length(void **state) {
    Served *served = *state;
    Error err = {0};
    char value[8];
    size_t bytes = sizeof value;
    Listener l = {.trick = RELAY, .store_port = served->port, .spoiled = GREETING + 8 + 2};
    assert_int_equal(store_set(served->store, "k", "value", 5, &err), 0);
    listener_start(&l);
    Store *store = new_client(l.port);
    assert_int_equal(store_get(store, "k", value, &bytes, &err), -1);
    check_message(&err, strerror(EPROTO));
    err = (Error){0};
    assert_int_equal(store_get(store, "k", value, &bytes, &err), -1);
    check_message(&err, "is broken");
    store_close(store);
    listener_end(&l);
    assert_alive(served);
}

// ---- False clients

static void test_replay_to_server(void **state) {
    Served *served = *state;
    Listener old;
    record_conversation(served, &old);
    const uint8_t *said = old.client.data;
    uint8_t hello[STORE_HELLO_BYTES], answer[STORE_ANSWER_BYTES];
    int fd = raw_connect(served->port);
    raw_send(fd, said, STORE_HELLO_BYTES);
    assert_int_equal(raw_receive(fd, hello, sizeof hello), NET_DONE);
    assert_memory_not_equal(hello, old.server.data, sizeof hello); // another nonce
    raw_send(fd, said + STORE_HELLO_BYTES, old.client.bytes - STORE_HELLO_BYTES);
    assert_int_equal(raw_receive(fd, answer, sizeof answer), NET_DONE);
    assert_int_equal(store_read_u32(answer + STORE_MAGIC_BYTES), STORE_WRONG_TOKEN);
    close(fd);
    assert_alive(served);
}

// A refused client receives no byte that depends on the token.
static void test_refusal_proves_nothing(void **state) {
    Served *served = *state;
    const uint8_t zeros[STORE_PROOF_BYTES] = {0};
    uint8_t hello[STORE_HELLO_BYTES], answer[STORE_ANSWER_BYTES];
    int fd = raw_connect(served->port);
    store_write_hello(hello, zeros);
    raw_send(fd, hello, sizeof hello);
    assert_int_equal(raw_receive(fd, hello, sizeof hello), NET_DONE);
    raw_send(fd, zeros, sizeof zeros);
    assert_int_equal(raw_receive(fd, answer, sizeof answer), NET_DONE);
    assert_memory_equal(answer + STORE_MAGIC_BYTES + 4, zeros, sizeof zeros);
    raw_send(fd, zeros, sizeof zeros); // a second proof is not accepted
    assert_int_equal(raw_receive(fd, answer, 1), NET_CLOSED);
    close(fd);
}

// The old protocol, in which the client sent the token itself, is refused as foreign.
static void test_plain_token_is_no_greeting(void **state) {
    Served *served = *state;
    char greeting[8 + STORE_TOKEN_MAX] = "ddpstor1" TOKEN, byte;
    int fd = raw_connect(served->port);
    raw_send(fd, greeting, sizeof greeting);
    assert_int_equal(raw_receive(fd, &byte, 1), NET_CLOSED);
    close(fd);
}

// The client gets an error; the server prints one line for all refused clients.
static void test_wrong_token_is_said_once(void **state) {
    Served *served = *state;
    int talk = memfd_create("stderr", MFD_CLOEXEC), kept = dup(STDERR_FILENO);
    assert_true(talk >= 0 && kept >= 0 && dup2(talk, STDERR_FILENO) >= 0);
    Error err = {0}, again = {0};
    Store *first = store_connect(HOST, served->port, "wrong", LONG_S, &err);
    Store *second = store_connect(HOST, served->port, "wrong", LONG_S, &again);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    char text[1024] = "";
    assert_true(pread(talk, text, sizeof text - 1, 0) >= 0);
    close(talk);
    assert_true(!first && !second);
    check_message(&err, "it refuses this token (DDPRUN_TOKEN)");
    assert_int_equal(err.status, STATUS_USAGE);
    const char *line = "store: refused a client at 127.0.0.1: its token is not this job's "
                       "(DDPRUN_TOKEN must be the same on every node)\n";
    assert_string_equal(text, line);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handshake_during_exit),
        SERVED(test_token_is_never_sent),
        cmocka_unit_test(test_proof_is_hmac_sha256),
        cmocka_unit_test(test_store_without_token),
        cmocka_unit_test(test_reflection),
        SERVED(test_replay_to_client),
        cmocka_unit_test(test_silence_has_a_deadline),
        cmocka_unit_test(test_another_server),
        SERVED(test_timeout_inside_a_header),
        SERVED(test_timeout_inside_a_value),
        SERVED(test_reply_of_any_length),
        SERVED(test_replay_to_server),
        SERVED(test_refusal_proves_nothing),
        SERVED(test_plain_token_is_no_greeting),
        SERVED(test_wrong_token_is_said_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
