/* tiny.h */
#ifndef TINY_H
#define TINY_H

int clamp(int x);
double count_to(double n, double step);
int store(int *state, int low, int high);
int wide(int low, int high);
void last_words(volatile int *said);
int never_called(int x);
int twice(int x);
double a_moment_later(double n); // n

#endif
