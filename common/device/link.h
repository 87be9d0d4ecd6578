/* link.h: an emulated interconnect, which shows a network's effects on a machine with two cores.
 *
 * Every device has a link of its own to a switch of unlimited capacity: one direction out and one
 * in, each of `bytes_per_s`.
 *
 *      device 0  -- out -->  +--------+  -- in -->  device 1
 *                <-- in ---  | switch |  <-- out --
 *                            +--------+
 *
 * A transfer of n bytes occupies the sender's outgoing and the receiver's incoming direction for
 * n / bytes_per_s seconds, and arrives `latency_s` later. Each direction carries one transfer at a
 * time, so transfers between all devices and one of them queue at its link: DataParallel's device 0
 * becomes the bottleneck. This is the alpha-beta model of the textbooks (Hockney 1994), with alpha
 * the latency and 1 / beta the bandwidth.
 *
 * The bytes are copied as without a link. The copying thread then sleeps until the modelled arrival
 * and leaves its core to other devices: a transfer takes at least the modelled time.
 */
#ifndef COMMON_DEVICE_LINK_H
#define COMMON_DEVICE_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/device/device.h"

typedef struct LinkSpeed {
    double bytes_per_s; // of each direction; 0: no emulated link
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
typedef struct DeviceLink DeviceLink;
DeviceLink *link_create(LinkSpeed speed);
void link_close(DeviceLink *link); // NULL is fine
LinkSpeed link_speed(const DeviceLink *link);

// Reserves both directions for a transfer that is ready at now_ns (clock_ns), and returns its
// arrival time. The transfer begins when both directions are free, at the slower link's bandwidth.
uint64_t link_reserve(DeviceLink *from, DeviceLink *to, size_t bytes, uint64_t now_ns);

// The bytes that one rank sends and receives in a collective, at the same time, and the number of
// dependent rounds, each of which costs the latency once.
typedef struct LinkLoad {
    double out_bytes, in_bytes;
    int rounds;
} LinkLoad;
// Reserves both directions of this rank's link for a collective that all ranks begin at now_ns, and
// returns its completion time. The ranks reserve the two sides of the same transfers.
uint64_t link_reserve_collective(DeviceLink *link, const LinkLoad *load, uint64_t now_ns);

// Sleeps until a time of clock_ns; returns at once if it is in the past.
void link_sleep_until(uint64_t until_ns);

// Gives the device a link: a copy between two devices with links takes at least the modelled time.
// Precondition: a CPU device, whose copies are complete when the call returns.
void device_emulate_link(Device *device, LinkSpeed speed);

#endif
