/* Names of the BMI method's codes; see check.h. */
#include "bmi.h"

static const struct {
    long long code;
    const char *text;
} names[] = {
#define NAMED(error) {-(long long)(error), "-" #error}
    NAMED(BMI_EPERM),      NAMED(BMI_ENOENT),       NAMED(BMI_EIO),
    NAMED(BMI_EAGAIN),     NAMED(BMI_ENOMEM),       NAMED(BMI_EBUSY),
    NAMED(BMI_ENODEV),     NAMED(BMI_EINVAL),       NAMED(BMI_ENOSYS),
    NAMED(BMI_EPROTO),     NAMED(BMI_EMSGSIZE),     NAMED(BMI_EADDRINUSE),
    NAMED(BMI_ENETRESET),  NAMED(BMI_ETIMEDOUT),    NAMED(BMI_ECONNREFUSED),
    NAMED(BMI_EHOSTDOWN),  NAMED(BMI_EHOSTUNREACH), NAMED(BMI_ENETUNREACH),
    NAMED(BMI_ECONNRESET), NAMED(BMI_ECANCEL),      NAMED(BMI_EOVERFLOW),
    NAMED(BMI_EALREADY),   NAMED(BMI_EADDRNOTAVAIL), NAMED(BMI_ENOBUFS),
    NAMED(BMI_EACCES),
#undef NAMED
};

const char *code_text(long long code)
{
    static _Thread_local char number[32];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].code == code)
            return names[i].text;
    snprintf(number, sizeof number, "%lld", code);
    return number;
}
