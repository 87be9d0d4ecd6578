/* link.h: an emulated interconnect, so that two cores can show what a network does.
 *
 * Every device has a link of its own to a switch that is never full: one way out and one way in,
 * each `bytes_per_s` wide.
 *
 *      device 0  -- out -->  +--------+  -- in -->  device 1
 *                <-- in ---  | switch |  <-- out --
 *                            +--------+
 *
 * A transfer of n bytes holds the sender's way out and the receiver's way in for n / bytes_per_s
 * seconds, and arrives `latency_s` after it has left. Each way carries one transfer at a time. So
 * whatever all devices exchange with one of them queues up at that one's link: DataParallel's
 * device 0 becomes the bottleneck by itself. This is the alpha-beta model of the textbooks
 * (Hockney 1994), with alpha the latency and 1 / beta the width.
 *
 * The bytes are copied as without a link, with the same bits. The copying thread then sleeps until
 * the modelled arrival, so that its core is free for another device: a transfer takes at least the
 * modelled time.
 */
#ifndef COMMON_DEVICE_LINK_H
#define COMMON_DEVICE_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/device/device.h"

typedef struct LinkSpeed {
    double bytes_per_s; // of each way; 0: there is no emulated link
    double latency_s;
} LinkSpeed;

// Reads "GBIT,LATENCY_US" ("10,5": 10 Gbit/s, 5 microseconds) or a name (link_names). Returns 0, or
// -1 with err filled (STATUS_USAGE).
int link_parse(const char *text, LinkSpeed *speed, Error *err);
const char *link_names(void); // "10gbe|pcie3x16|nvlink|paper-rdma"

// "an emulated link of 10 Gbit/s and 20 us". Returns text.
enum { LINK_TEXT_MAX = 64 };
const char *link_describe(LinkSpeed speed, char text[LINK_TEXT_MAX]);

// One device's link. Threads may share it.
typedef struct Link Link;
Link *link_create(LinkSpeed speed);
void link_close(Link *link); // NULL is fine
LinkSpeed link_speed(const Link *link);

// Reserves both ways for a transfer that could begin at now_ns (clock_ns) and returns when it has
// arrived. It begins when both ways are free. The slower of two links sets the pace.
uint64_t link_reserve(Link *from, Link *to, size_t bytes, uint64_t now_ns);

// What one rank sends and receives in a collective, both at the same time, and in how many rounds
// that wait for each other (each costs the latency once).
typedef struct LinkLoad {
    double out_bytes, in_bytes;
    int rounds;
} LinkLoad;
// The same for a collective: reserves this rank's ways, and returns when it is over. All ranks do
// so from the same moment on; what they reserve are two sides of the same transfers.
uint64_t link_reserve_collective(Link *link, const LinkLoad *load, uint64_t now_ns);

// Sleeps until a time of clock_ns; returns at once if that is over.
void link_sleep_until(uint64_t until_ns);

// From now on a copy to or from another device that has a link too takes at least the time that it
// would take over such a network. This is for devices whose copies are done when the call returns
// (CPUs).
void device_emulate_link(Device *device, LinkSpeed speed);

#endif
