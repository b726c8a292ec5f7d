/* The header alone, as C99 with -pedantic: it must need nothing included before it. */
#include "bmi_mx.h"

/* A repeated declaration is an error if the types differ. */
extern const struct bmi_method_ops bmi_mx_ops;
extern const struct bmi_method_ops method_interface;

typedef int the_header_is_enough;
