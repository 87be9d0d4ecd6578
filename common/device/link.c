/* link.c: the schedule of an emulated link: when each of its two directions is free. */
#include "common/device/link.h"

#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/memory.h"

#define GBIT        0.125e9 // bytes per second
#define MICROSECOND 1e-6

static const struct {
    const char *name;
    LinkSpeed speed;
} named[] = {
    {"10gbe", {10 * GBIT, 20 * MICROSECOND}},      // Ethernet between servers, by TCP
    {"pcie3x16", {126 * GBIT, 5 * MICROSECOND}},   // 15.75 GB/s each way
    {"nvlink", {1200 * GBIT, 2 * MICROSECOND}},    // a V100's six links of 25 GB/s each way
    {"paper-rdma", {100 * GBIT, 3 * MICROSECOND}}, // the servers of the DDP paper (VLDB 2020)
};
enum { NAMED = sizeof named / sizeof named[0] };

struct DeviceLink {
    LinkSpeed speed;
    pthread_mutex_t mutex; // guards the fields below
    uint64_t out_free_ns, in_free_ns;
};

const char *link_names(void) {
    return "10gbe|pcie3x16|nvlink|paper-rdma";
}

int link_parse(const char *text, LinkSpeed *speed, Error *err) {
    for (int i = 0; i < NAMED; i++)
        if (strcmp(text, named[i].name) == 0) {
            *speed = named[i].speed;
            return 0;
        }
    double gbit, latency_us;
    char rest;
    // Within these bounds no sum of nanoseconds overflows. NaN fails both comparisons.
    if (sscanf(text, "%lf,%lf%c", &gbit, &latency_us, &rest) != 2 ||
        !(gbit >= 1e-3 && gbit <= 1e6) || !(latency_us >= 0 && latency_us <= 1e6))
        return error_set(err, STATUS_USAGE,
                         "--link %s: expected GBIT,LATENCY_US like 10,5 (0.001 to 1e6 Gbit/s, 0 to "
                         "1e6 us), or one of %s",
                         format_quote(text).text, link_names());
    *speed = (LinkSpeed){gbit * GBIT, latency_us * MICROSECOND};
    return 0;
}

const char *link_describe(LinkSpeed speed, char text[LINK_TEXT_MAX]) {
    snprintf(text, LINK_TEXT_MAX, "an emulated link of %.4g Gbit/s and %.4g us",
             speed.bytes_per_s / GBIT, speed.latency_s / MICROSECOND);
    return text;
}

DeviceLink *link_create(LinkSpeed speed) {
    CHECK(speed.bytes_per_s > 0 && speed.latency_s >= 0, "a link of %g bytes/s and %g s",
          speed.bytes_per_s, speed.latency_s);
    DeviceLink *link = memory_zalloc(sizeof *link);
    link->speed = speed;
    pthread_mutex_init(&link->mutex, NULL);
    return link;
}

void link_close(DeviceLink *link) {
    if (!link) return;
    pthread_mutex_destroy(&link->mutex);
    free(link);
}

LinkSpeed link_speed(const DeviceLink *link) {
    return link->speed;
}

static uint64_t latest(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t to_ns(double seconds) {
    return (uint64_t)(seconds * 1e9 + 0.5);
}

// Locks in the order of addresses, so that two threads cannot deadlock.
static void lock_both(DeviceLink *a, DeviceLink *b) {
    pthread_mutex_lock(a < b ? &a->mutex : &b->mutex);
    pthread_mutex_lock(a < b ? &b->mutex : &a->mutex);
}

uint64_t link_reserve(DeviceLink *from, DeviceLink *to, size_t bytes, uint64_t now_ns) {
    CHECK(from != to, "a transfer from a device to itself crosses no link");
    const LinkSpeed *slow =
        from->speed.bytes_per_s < to->speed.bytes_per_s ? &from->speed : &to->speed;
    lock_both(from, to);
    uint64_t begin = latest(now_ns, latest(from->out_free_ns, to->in_free_ns));
    uint64_t end = begin + to_ns((double)bytes / slow->bytes_per_s);
    from->out_free_ns = to->in_free_ns = end;
    pthread_mutex_unlock(&to->mutex);
    pthread_mutex_unlock(&from->mutex);
    return end + to_ns(slow->latency_s);
}

uint64_t link_reserve_collective(DeviceLink *link, const LinkLoad *load, uint64_t now_ns) {
    const double width = link->speed.bytes_per_s;
    pthread_mutex_lock(&link->mutex);
    uint64_t begin = latest(now_ns, latest(link->out_free_ns, link->in_free_ns));
    link->out_free_ns = begin + to_ns(load->out_bytes / width);
    link->in_free_ns = begin + to_ns(load->in_bytes / width);
    uint64_t end = latest(link->out_free_ns, link->in_free_ns);
    pthread_mutex_unlock(&link->mutex);
    return end + to_ns(load->rounds * link->speed.latency_s);
}

void link_sleep_until(uint64_t until_ns) {
    // The default timer slack lets a thread oversleep by 50 us.
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    while (clock_ns() < until_ns) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}
