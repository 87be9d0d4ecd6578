/* 03-break-even.h: the network's speed from which on a second device saves time.
 *
 * One device computes its rows in compute_s. W devices with DataParallel compute W times as many
 * rows in
 *
 *     compute_s + (W - 1) * 2 * (messages * latency_s + bytes / bytes_per_s)
 *
 * as device 0 sends the weights to each of the others and receives their gradients. That saves time
 * if it is less than W * compute_s, the time of one device for the same rows. Both are equal at a
 * certain bytes_per_s: solve for it. (The result is independent of W: if DataParallel does not pay
 * with two devices, it does not with any number.)
 *
 * If the latency alone takes as long as the saved time, no network is fast enough: INFINITY.
 */
#ifndef TUTORIALS_BREAK_EVEN_H
#define TUTORIALS_BREAK_EVEN_H

// Returns bits per second, the usual unit of networks: 8 to a byte.
double break_even_bits_per_s(double compute_s, double bytes, int messages, double latency_s);

#endif
