// The header alone, as C++17 with -pedantic: names have C linkage, so that this links.
#include "bmi_mx.h"

#include <cstdio>
#include <cstring>

int main()
{
    const bool good = std::strcmp(bmi_mx_ops.method_name, "bmi_mx") == 0 &&
                      BMI_mx_finalize() == -BMI_ENODEV;

    std::printf("tally %d passed %d failed 0 skipped\n", good ? 1 : 0, good ? 0 : 1);
    return good ? 0 : 1;
}
