/*
 * A program that loads a library, initializes it and asks for the name of 10.0.0.9, which only a peers file can
 * contain. Prints its rights and the result.
 *
 *   embedder LIBRARY [OPTIONS]     the options are those of libbmi_mx's `initialize`
 */
#define _GNU_SOURCE
#include "bmi_mx.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* MX_API and MX_MAX_HOSTNAME_LEN of myriexpress.h. */
enum { MX_API = 0x301, MX_NAME_MAX = 80 };

int main(int count, char **arguments)
{
    const struct bmi_method_ops *ops;
    int (*mx_init)(int), (*mx_find)(const char *, uint64_t *), (*mx_name)(uint64_t, char *), code, listed = 0;
    uint64_t nic;
    char name[MX_NAME_MAX];
    void *symbol, *library = dlopen(count > 1 ? arguments[1] : "", RTLD_NOW | RTLD_LOCAL);

    printf("user %d, elevated %lu\n", (int)geteuid(), getauxval(AT_SECURE));
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    ops = dlsym(library, "bmi_mx_ops");
    if (ops != NULL) {
        code = ops->initialize(NULL, 1, 0, count > 2 ? arguments[2] : NULL);
        if (code == 0) {
            listed = ops->query_addr_range(ops->method_addr_lookup("mx://10.0.0.9:5"), "mx://listed", 32);
            ops->finalize();
        }
    } else {
        symbol = dlsym(library, "mx__init_api");
        memcpy(&mx_init, &symbol, sizeof mx_init);
        symbol = dlsym(library, "mx_hostname_to_nic_id");
        memcpy(&mx_find, &symbol, sizeof mx_find);
        symbol = dlsym(library, "mx_nic_id_to_hostname");
        memcpy(&mx_name, &symbol, sizeof mx_name);
        code = mx_init(MX_API);
        if (code == 0 && mx_find("10.0.0.9", &nic) == 0 && mx_name(nic, name) == 0)
            listed = strncmp(name, "listed", strlen("listed")) == 0;
    }
    printf("code %d, listed %d\n", code, listed);
    return 0;
}
