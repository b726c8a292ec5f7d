/* The headers alone, as C99 with -pedantic: each needs nothing included before it. */
#include "mx_extensions.h"
#include "myriexpress.h"
#include "mx_io.h"
#include "mx_internals/mx__driver_interface.h"
#include "mx_internals/mx__fops.h"
/* Including a header twice does no harm. */
#include "mx_io.h"
#include "mx_extensions.h"

typedef int the_headers_are_enough;
