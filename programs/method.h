/*
 * Getting hold of the BMI method, the two ways a C program can:
 *
 *   default                 dlopen("libbmi_mx.so") and dlsym("bmi_mx_ops"), as a host with plug-ins
 *   -DMETHOD_LINKED         linked through pkg-config, as a host that names the library
 *
 * With -DMETHOD_STANDALONE it is libbmi_mx_standalone, with the stand-alone BMI's table.
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

/* Prints why and returns NULL when the method cannot be had. */
const struct bmi_method_ops *method_open(const char *program);

/* The text of a negative BMI error code; a static buffer for codes it does not know. */
const char *method_error(int code);

#endif
