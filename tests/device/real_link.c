/* real_link.c: compares the model of a link (device/link.h) with a real link, which real_link.sh
 * makes: two network namespaces, a virtual cable between them, and tc to limit its bandwidth.
 *
 *     real_link serve PORT                     on one side, until it is killed
 *     real_link measure ADDRESS PORT GBIT      on the other: prints and judges three times
 *
 * It checks the model's assumptions: a transfer takes bytes / bandwidth; two transfers in the same
 * direction share the link and take twice as long; two in opposite directions take no longer than
 * one. Other load on the machine only makes times longer: the best of several tries counts.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/device/link.h"

enum { BYTES = 4 << 20, CHUNK = 64 << 10, TRIES = 8 };
// A full segment has 1,448 bytes of payload and 66 of Ethernet, IP and TCP headers, which tc
// counts.
#define PAYLOAD (1448.0 / 1514.0)

typedef enum Way { TO_SERVER, TO_CLIENT } Way;

static struct sockaddr_in address_of(const char *host, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
    inet_pton(AF_INET, host, &address.sin_addr);
    return address;
}

static int send_bytes(int fd) {
    static const char zeros[CHUNK];
    for (size_t left = BYTES; left > 0;) {
        ssize_t n = send(fd, zeros, left < CHUNK ? left : CHUNK, MSG_NOSIGNAL);
        if (n <= 0) return -1;
        left -= (size_t)n;
    }
    return 0;
}

static int receive_bytes(int fd) {
    char room[CHUNK];
    for (size_t left = BYTES; left > 0;) {
        ssize_t n = recv(fd, room, sizeof room < left ? sizeof room : left, 0);
        if (n <= 0) return -1;
        left -= (size_t)n;
    }
    return 0;
}

// ---- the server -------------------------------------------------------------------------------

// Protocol: one byte for the direction, then the payload; the receiver confirms with one byte.
static void *answer(void *context) {
    int fd = (int)(intptr_t)context;
    char way;
    if (recv(fd, &way, 1, 0) == 1) {
        if (way == TO_SERVER && receive_bytes(fd) == 0) (void)send(fd, "", 1, MSG_NOSIGNAL);
        if (way == TO_CLIENT && send_bytes(fd) == 0) (void)recv(fd, &way, 1, 0);
    }
    close(fd);
    return NULL;
}

static int serve(const char *port) {
    const struct sockaddr_in address = address_of("0.0.0.0", port);
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (const struct sockaddr *)&address, sizeof address) != 0) return 1;
    if (listen(listener, 8) != 0) return 1;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        pthread_t thread;
        if (fd < 0) return 1;
        pthread_create(&thread, NULL, answer, (void *)(intptr_t)fd);
        pthread_detach(thread);
    }
}

// ---- the client -------------------------------------------------------------------------------

typedef struct Transfer {
    struct sockaddr_in server;
    Way way;
    int fd;
    bool failed;
} Transfer;

static void *transfer(void *context) {
    Transfer *t = context;
    char byte = (char)t->way;
    t->failed = send(t->fd, &byte, 1, MSG_NOSIGNAL) != 1;
    if (!t->failed && t->way == TO_SERVER)
        t->failed = send_bytes(t->fd) || recv(t->fd, &byte, 1, 0) != 1;
    if (!t->failed && t->way == TO_CLIENT) t->failed = receive_bytes(t->fd) != 0;
    return NULL;
}

// Connects, with retries, because the server may have just been started. -1 after ten seconds.
static int reach(const struct sockaddr_in *server) {
    for (int i = 0; i < 200; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (const struct sockaddr *)server, sizeof *server) == 0) return fd;
        close(fd);
        link_sleep_until(clock_ns() + 50000000);
    }
    return -1;
}

// Returns the seconds until all transfers, started at once, have completed; negative: one failed.
static double time_transfers(Transfer *transfers, int count) {
    pthread_t threads[2];
    double seconds = 0;
    for (int i = 0; i < count; i++) {
        transfers[i].fd = reach(&transfers[i].server);
        if (transfers[i].fd < 0) return -1;
    }
    const uint64_t begin = clock_ns();
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, transfer, &transfers[i]);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    seconds = (double)(clock_ns() - begin) / 1e9;
    for (int i = 0; i < count; i++) {
        close(transfers[i].fd);
        if (transfers[i].failed) seconds = -1;
    }
    return seconds;
}

// The model's prediction: the time at which the last transfer has arrived.
static double model_transfers(const Transfer *transfers, int count, LinkSpeed speed) {
    DeviceLink *client = link_create(speed), *server = link_create(speed);
    uint64_t over = 0;
    for (int i = 0; i < count; i++) {
        bool out = transfers[i].way == TO_SERVER;
        uint64_t end = link_reserve(out ? client : server, out ? server : client, BYTES, 0);
        over = end > over ? end : over;
    }
    link_close(client);
    link_close(server);
    return (double)over / 1e9;
}

static int judge(const char *what, Transfer *transfers, int count, LinkSpeed speed) {
    const double model = model_transfers(transfers, count, speed);
    double best = 1e9, least = 0.93, most = 1.15;
    for (int i = 0; i < TRIES && best > most * model; i++) {
        double seconds = time_transfers(transfers, count);
        if (seconds < 0) return 1;
        best = seconds < best ? seconds : best;
    }
    bool fits = best >= least * model && best <= most * model;
    printf("%-28s model %.4f s, real %.4f s: %.3f times%s\n", what, model, best, best / model,
           fits ? "" : "  FAILED");
    return !fits;
}

static int measure(const char *host, const char *port, double gbit) {
    const LinkSpeed speed = {.bytes_per_s = gbit * 0.125e9 * PAYLOAD};
    Transfer transfers[2] = {{.server = address_of(host, port), .way = TO_SERVER}};
    int failures = judge("one transfer", transfers, 1, speed);
    transfers[1] = transfers[0];
    failures += judge("two, the same way", transfers, 2, speed);
    transfers[1].way = TO_CLIENT;
    failures += judge("two, opposite ways", transfers, 2, speed);
    return failures ? 1 : 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "serve") == 0) return serve(argv[2]);
    if (argc == 5 && strcmp(argv[1], "measure") == 0)
        return measure(argv[2], argv[3], strtod(argv[4], NULL));
    fprintf(stderr, "usage: real_link serve PORT | measure ADDRESS PORT GBIT\n");
    return 2;
}
