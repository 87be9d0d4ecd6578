/* routes.h: which rank's output goes to a file, to the console or to both: --redirects, --tee and
 * --local-ranks-filter read.
 */
#ifndef DDP_LAUNCH_ROUTES_H
#define DDP_LAUNCH_ROUTES_H

#include "ddp/launch/output.h"

// Fills [options->ranks] bytes, which are 0 before: `files` says what goes to a file, `hidden` what
// does not go to the console. Bit 1 stands for stdout, bit 2 for stderr. 0, or -1 with err filled.
int routes_read(const OutputOptions *options, unsigned char *files, unsigned char *hidden,
                Error *err);

#endif
