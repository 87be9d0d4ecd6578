/* shapes.h: images with a label for every pixel, made by the program: "shapes[:HxW[@COUNT]]".
 *
 * One to three circles, rectangles and triangles of random places, sizes and colours lie one over
 * the other on a background of one colour, with noise over it all. A pixel's class is the kind of
 * the uppermost shape there, 0 for the background. The colours say nothing about the classes: a
 * network has to look at the form. The outline of every shape is to be ignored, as it is in
 * hand-labelled data, where nobody knows it to the pixel.
 *
 * A sample is a pure function of (seed, its number, H, W), so each rank makes the same set on its
 * own, and a larger COUNT continues a smaller one.
 */
#ifndef COMMON_DATA_SHAPES_H
#define COMMON_DATA_SHAPES_H

#include "common/data/dataset.h"

enum { SHAPES_BACKGROUND, SHAPES_CIRCLE, SHAPES_RECTANGLE, SHAPES_TRIANGLE, SHAPES_CLASSES };

// Fills train and test, but for mean and std. The test set has COUNT / 5 samples, at least one.
// Returns 0, or -1 with err filled and nothing allocated.
int shapes_open(const char *name, uint64_t seed, DataSource *source, Error *err);

#endif
