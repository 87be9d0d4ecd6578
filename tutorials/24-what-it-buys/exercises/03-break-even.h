/* 03-break-even.h: how fast must the network be, so that a second device is worth having?
 *
 * One device computes its rows in compute_s. W devices with DataParallel compute W times as many
 * rows in
 *
 *     compute_s + (W - 1) * 2 * (messages * latency_s + bytes / bytes_per_s)
 *
 * as device 0 sends the weights to each of the others and takes their gradients. That is worth
 * having if it is less than the W * compute_s which one device needs for so many rows. Both are
 * equal at a certain bytes_per_s: find it by solving for it. (W falls out. If DataParallel does not
 * pay with two devices, it does not with any number.)
 *
 * If the latency alone takes as long as what is gained, no network is fast enough: INFINITY.
 */
#ifndef TUTORIALS_BREAK_EVEN_H
#define TUTORIALS_BREAK_EVEN_H

// Returns bits per second, as networks are sold: 8 to a byte.
double break_even_bits_per_s(double compute_s, double bytes, int messages, double latency_s);

#endif
