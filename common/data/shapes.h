/* shapes.h: generated images with a label for every pixel: "shapes[:HxW[@COUNT]]".
 *
 * One to three circles, rectangles and triangles of random positions, sizes and colours overlap on
 * a background of one colour, with noise added. A pixel's class is the kind of the uppermost shape,
 * 0 for the background. Colours are independent of the classes, so a network has to learn the form.
 * The outlines have LABEL_IGNORE, as in hand-labelled data, where they are uncertain.
 *
 * A sample is a pure function of (seed, index, H, W), so all ranks generate the same set, and a
 * larger COUNT extends a smaller one.
 */
#ifndef COMMON_DATA_SHAPES_H
#define COMMON_DATA_SHAPES_H

#include "common/data/dataset.h"

enum { SHAPES_BACKGROUND, SHAPES_CIRCLE, SHAPES_RECTANGLE, SHAPES_TRIANGLE, SHAPES_CLASSES };

// Fills train and test except mean and std. The test set has COUNT / 5 samples, at least one.
// Returns 0, or -1 with err filled and nothing allocated.
int shapes_open(const char *name, uint64_t seed, DataSource *source, Error *err);

#endif
