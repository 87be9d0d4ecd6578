/* routes.h: which rank's output goes to a file, to the console or to both: --redirects, --tee and
 * --local-ranks-filter read.
 */
#ifndef DDP_LAUNCH_ROUTES_H
#define DDP_LAUNCH_ROUTES_H

#include "ddp/launch/output.h"

// Fills files and hidden, [options->ranks] bytes that are 0 before: bit 1 stands for stdout, bit 2
// for stderr; which go to a file, and which not to the console. 0, or -1 with err filled.
int routes_read(const OutputOptions *options, unsigned char *files, unsigned char *hidden,
                Error *err);

#endif
