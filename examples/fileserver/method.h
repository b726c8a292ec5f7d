/*
 * Getting hold of the BMI method, the two ways a C program can:
 *
 *   default                 dlopen("libbmi_mx.so") and dlsym("bmi_mx_ops"), as a host with plug-ins
 *   -DMETHOD_LINKED         linked through pkg-config, as a host that names the library
 */
#ifndef FILESERVER_METHOD_H
#define FILESERVER_METHOD_H

#include <bmi_mx.h>

/* Prints why and returns NULL when the method cannot be had. */
const struct bmi_method_ops *method_open(const char *program);

/* The text of a negative BMI error code; a static buffer for codes it does not know. */
const char *method_error(int code);

#endif
