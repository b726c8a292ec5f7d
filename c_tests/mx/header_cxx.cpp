// The headers alone, as C++17 with -pedantic: names have C linkage, so that this links.
#include "myriexpress.h"
#include "mx_extensions.h"
#include "mx_internals/mx__driver_interface.h"
#include "mx_internals/mx__fops.h"
#include "mx_io.h"

#include <cstdio>
#include <cstring>

static_assert(sizeof(mx_status_t) == 48 && sizeof(mx_endpoint_addr_t) == 16, "as in C");

int main()
{
    mx_set_error_handler(MX_ERRORS_RETURN);
    mx_request_t request = nullptr;
    const bool good = mx_progress(nullptr) == MX_BAD_ENDPOINT &&
                      mx_forget(nullptr, &request) != MX_SUCCESS && mx_init() == MX_SUCCESS &&
                      mx_finalize() == MX_SUCCESS && std::strlen(mx_strerror(MX_BUSY)) != 0;

    std::printf("tally %d passed %d failed 0 skipped\n", good ? 1 : 0, good ? 0 : 1);
    return good ? 0 : 1;
}
