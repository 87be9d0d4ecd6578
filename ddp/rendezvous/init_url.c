/* init_url.c: parses a URL, PyTorch's init_method, into a Rendezvous (ddp/rendezvous/init.h).
 * Errors have PyTorch's texts.
 *
 *     env://                                  the environment (init_env.c)
 *     tcp://10.0.0.7:29500?rank=1&world_size=4
 *     file:///home/me/meeting?rank=1&world_size=4
 *
 * Stricter than PyTorch: unknown parameters are errors, and so is a host in file://, which PyTorch
 * ignores.
 */
#include <string.h>

#include "common/base/format.h"
#include "ddp/rendezvous/rendezvous_internal.h"

typedef struct Url {
    const char *whole;
    char scheme[16], authority[300], path[INIT_PATH_MAX];
    int rank, world_size; // -1: not given
} Url;

// Copies [text, text + length) and a NUL; false if it is too long.
static bool copy_part(char *to, size_t capacity, const char *text, size_t length) {
    if (length >= capacity) return false;
    memcpy(to, text, length);
    to[length] = '\0';
    return true;
}

// ---- The parts of a URL

// One "name=value" of the query.
static int read_parameter(Url *url, const char *text, size_t length, Error *err) {
    const char *names[] = {"rank=", "world_size="};
    int *values[] = {&url->rank, &url->world_size};
    for (size_t i = 0; i < 2; i++) {
        size_t name = strlen(names[i]);
        if (length < name || strncmp(text, names[i], name) != 0) continue;
        const char *at = text + name;
        uint64_t number;
        bool fine = format_read_number(&at, INIT_WORLD_MAX, &number) && at == text + length;
        if (fine) *values[i] = (int)number;
        if (fine) return 0;
        return error_set(err, STATUS_USAGE, "%s: '%.*s' must be a whole number from 0 to %d",
                         url->whole, (int)length, text, INIT_WORLD_MAX);
    }
    return error_set(err, STATUS_USAGE, "%s: '%.*s': known parameters are rank and world_size",
                     url->whole, (int)length, text);
}

static int split_url(Url *url, const char *text, Error *err) {
    *url = (Url){.whole = text, .rank = -1, .world_size = -1};
    const char *mark = strstr(text, "://");
    size_t scheme = mark ? (size_t)(mark - text) : 0;
    if (!mark || !copy_part(url->scheme, sizeof url->scheme, text, scheme))
        return error_set(err, STATUS_USAGE, "No rendezvous handler for %.*s:// (%.80s)",
                         (int)(scheme < 80 ? scheme : 80), text, text);
    const char *rest = mark + 3;
    size_t authority = strcspn(rest, "/?"), path = strcspn(rest + authority, "?");
    if (!copy_part(url->authority, sizeof url->authority, rest, authority) ||
        !copy_part(url->path, sizeof url->path, rest + authority, path))
        return error_set(err, STATUS_USAGE, "%.80s...: the URL is too long", text);
    rest += authority + path;
    while (*rest) { // '?' or '&' and a parameter
        size_t length = strcspn(++rest, "&");
        if (length > 0 && read_parameter(url, rest, length, err) != 0) return -1;
        rest += length;
    }
    return 0;
}

// ---- Rank and world size

// Rank and world size come from the arguments or from the URL, not from both.
static int merge_arguments(Url *url, int rank, int world_size, Error *err) {
    if ((rank >= 0 || world_size >= 0) && (url->rank >= 0 || url->world_size >= 0))
        return error_set(err, STATUS_USAGE,
                         "The url: %s has node-specific arguments(rank, world_size) already.",
                         url->whole);
    if (rank >= 0) url->rank = rank;
    if (world_size >= 0) url->world_size = world_size;
    if (url->world_size != 0) return 0;
    return error_set(err, STATUS_USAGE, "a world of 0 ranks (%s)", url->whole);
}

static int take_ranks(Rendezvous *r, const Url *url, Error *err) {
    const char *missing = NULL;
    if (url->rank < 0) missing = "rank parameter missing";
    if (!missing && url->world_size < 0) missing = "world size parameter missing";
    if (missing)
        return error_set(err, STATUS_USAGE, "%s:// rendezvous: %s (%s)", url->scheme, missing,
                         url->whole);
    if (url->rank >= url->world_size)
        return error_set(err, STATUS_USAGE,
                         "%s:// rendezvous: there is no rank %d in a world of %d", url->scheme,
                         url->rank, url->world_size);
    r->rank = r->local_rank = url->rank;
    r->world_size = r->local_world_size = url->world_size;
    return 0;
}

// ---- The address

// "host:port" or "[::1]:port".
static int take_address(Rendezvous *r, const Url *url, Error *err) {
    const char *host = url->authority, *end = strchr(host, ']');
    const char *colon = strrchr(end ? end : host, ':');
    size_t length = colon ? (size_t)(colon - host) : strlen(host);
    if (!colon || !colon[1])
        return error_set(err, STATUS_USAGE, "tcp:// rendezvous: port number missing (%s)",
                         url->whole);
    const char *at = colon + 1;
    uint64_t port;
    if (!format_read_number(&at, INIT_PORT_MAX, &port) || *at || (port == 0 && r->world_size > 1))
        return error_set(
            err, STATUS_USAGE, "tcp:// rendezvous: port '%s' is out of range: 1 to %d%s", colon + 1,
            INIT_PORT_MAX, r->world_size > 1 ? "" : ", or 0 for a free one in a world of one");
    r->master_port = (int)port;
    bool brackets = end && host[0] == '[';
    if (brackets) host++, length = (size_t)(end - host);
    if (length == 0 || !copy_part(r->master_addr, sizeof r->master_addr, host, length))
        return error_set(err, STATUS_USAGE, "tcp:// rendezvous: host %s (%s)",
                         length ? "too long" : "missing", url->whole);
    return init_read_token(r->token, err);
}

static int take_file(Rendezvous *r, const Url *url, Error *err) {
    if (url->authority[0])
        return error_set(err, STATUS_USAGE,
                         "file:// rendezvous: '%s' would be a host: write file:///path (%s)",
                         url->authority, url->whole);
    if (!url->path[0])
        return error_set(err, STATUS_USAGE, "file:// rendezvous: path missing (%s)", url->whole);
    strcpy(r->file_path, url->path);
    return 0;
}

int init_from_url(Rendezvous *rendezvous, const char *text, int rank, int world_size, Error *err) {
    Url url;
    *rendezvous = (Rendezvous){.master_addr = "127.0.0.1"};
    if (split_url(&url, text, err) != 0) return -1;
    if (merge_arguments(&url, rank, world_size, err) != 0) return -1;
    if (strcmp(url.scheme, "env") == 0)
        return init_from_env_and(rendezvous, url.rank, url.world_size, false, err);
    bool tcp = strcmp(url.scheme, "tcp") == 0;
    if (!tcp && strcmp(url.scheme, "file") != 0)
        return error_set(err, STATUS_USAGE,
                         "No rendezvous handler for %s:// (known: env, tcp, file)", url.scheme);
    // PyTorch's order: the address before the rank. The port's range depends on the world size.
    if (tcp && !strchr(url.authority, ':')) return take_address(rendezvous, &url, err);
    if (!tcp && take_file(rendezvous, &url, err) != 0) return -1;
    if (take_ranks(rendezvous, &url, err) != 0) return -1;
    return tcp ? take_address(rendezvous, &url, err) : 0;
}
