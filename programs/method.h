/*
 * Loading the BMI method, in the two ways that a C program has:
 *
 *   default                 dlopen("libbmi_mx.so") and dlsym("bmi_mx_ops"), as a host with plug-ins
 *   -DMETHOD_LINKED         linked through pkg-config, as a host that names the library
 *
 * -DMETHOD_STANDALONE selects libbmi_mx_standalone, with the stand-alone BMI's table.
 */
#ifndef EXAMPLES_METHOD_H
#define EXAMPLES_METHOD_H

#ifdef METHOD_STANDALONE
#include <bmi_mx_standalone.h>
#define METHOD_LIBRARY "libbmi_mx_standalone.so.0"
#else
#include <bmi_mx.h>
#define METHOD_LIBRARY "libbmi_mx.so.0"
#endif

/* Returns the method's table. If it cannot be loaded, prints why and returns NULL. */
const struct bmi_method_ops *method_open(const char *program);

/* Returns the text of a negative BMI error code; for unknown codes a static buffer. */
const char *method_error(int code);

#endif
