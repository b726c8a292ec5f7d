/*
 * The ops table as a linker and a loader see it (docs/hosts.md, Linking and Layouts).
 *
 * Built three times: linked without -fPIC (the table is COPY-relocated into the program, as into pvfs2-server),
 * linked with -fPIC (it stays in the library), and with dlopen. Out of scope: the entries' behaviour.
 */
#include "../support/pair.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

/* Entries in the order of the table; entry i is at 16 + 8 * i. */
static const char *const entries[] = {
    "initialize",      "finalize",           "set_info",
    "get_info",        "memalloc",           "memfree",
    "unexpected_free", "post_send",          "post_sendunexpected",
    "post_recv",       "test",               "testsome",
    "testcontext",     "testunexpected",     "method_addr_lookup",
    "post_send_list",  "post_recv_list",     "post_sendunexpected_list",
    "open_context",    "close_context",      "cancel",
    "rev_lookup_unexpected", "query_addr_range",
};
enum { ENTRIES = sizeof entries / sizeof entries[0] };
_Static_assert(16 + 8 * ENTRIES == sizeof(struct bmi_method_ops), "23 entries fill the table");

static void *slot(const struct bmi_method_ops *table, int place)
{
    void *entry;

    memcpy(&entry, (const char *)table + 16 + 8 * place, sizeof entry);
    return entry;
}

/* Returns the library's own copy: dlsym in the library, not in the program. */
static void *in_library(const char *name)
{
    Dl_info info;
    void *finalize = library_symbol("BMI_mx_finalize"), *handle, *found;

    CHECK(finalize != NULL);
    CHECK(dladdr(finalize, &info) != 0);
    handle = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (handle == NULL)
        FAIL("dlopen %s: %s", info.dli_fname, dlerror());
    found = dlsym(handle, name);
    dlclose(handle);
    return found;
}

static void has_entries(struct side *side)
{
    const struct bmi_method_ops *table = the_ops();

    CHECK(strcmp(table->method_name, "bmi_mx") == 0);
    CHECK_THAT(table->flags, ==, BMI_METHOD_FLAG_NO_POLLING);
    for (int i = 0; i < ENTRIES; i++) {
        char name[64];

        if (slot(table, i) == NULL)
            FAIL("%s is NULL", entries[i]);
        snprintf(name, sizeof name, "BMI_mx_%s", entries[i]);
        if (library_symbol(name) == NULL)
            FAIL("%s is not exported", name);
        if (library_symbol(name) != slot(table, i))
            FAIL("the entry %s is another function than %s", entries[i], name);
        for (int k = 0; k < i; k++)
            CHECK(slot(table, k) != slot(table, i));
    }
}

static void check_object(const char *name)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    void *address = in_library(name);

    if (address == NULL)
        FAIL("%s is not exported", name);
    CHECK(dladdr1(address, &info, (void **)(void *)&symbol, RTLD_DL_SYMENT) != 0);
    CHECK(symbol != NULL);
    /* A data object of exactly the table's size: COPY relocations copy st_size bytes. */
    CHECK_THAT(symbol->st_size, ==, 200);
    CHECK_THAT(ELF64_ST_TYPE(symbol->st_info), ==, STT_OBJECT);
    CHECK_THAT(ELF64_ST_BIND(symbol->st_info), ==, STB_GLOBAL);
    CHECK_THAT(ELF64_ST_VISIBILITY(symbol->st_other), ==, STV_DEFAULT);
}

static void is_an_object(struct side *side)
{
    check_object("bmi_mx_ops");
    check_object("method_interface");
}

static void has_an_alias(struct side *side)
{
    const void *alias = library_symbol("method_interface");

    CHECK(alias != NULL);
    CHECK(memcmp(alias, the_ops(), sizeof(struct bmi_method_ops)) == 0);
}

#if defined(TABLE_COPIED) || defined(TABLE_LINKED)
static bool in_program(const void *address)
{
    Dl_info table, here;

    CHECK(dladdr(address, &table) != 0);
    CHECK(dladdr((void *)(uintptr_t)in_program, &here) != 0);
    return table.dli_fbase == here.dli_fbase;
}

static void lies_where_it_should(struct side *side)
{
#ifdef TABLE_COPIED
    CHECK(in_program(&bmi_mx_ops)); /* the loader has copied it */
#else
    CHECK(!in_program(&bmi_mx_ops));
#endif
}
#endif

/* The library works through this table, whichever copy it is. */
static void serves(struct side *side)
{
    pair_exchange_all(pair_server(side), 1);
    pair_part(side);
}

static void calls(struct side *side)
{
    pair_exchange_all(pair_client(side), 1);
    pair_part(side);
}

static const struct scenario scenarios[] = {
    SOLO(all_entries_are_there_in_order_and_exported_by_name, has_entries),
    SOLO(table_and_alias_are_objects_of_200_bytes, is_an_object),
    SOLO(method_interface_equals_bmi_mx_ops, has_an_alias),
#if defined(TABLE_COPIED) || defined(TABLE_LINKED)
    SOLO(the_table_lies_where_this_way_of_linking_puts_it, lies_where_it_should),
#endif
    PAIR(two_processes_talk_through_the_table, serves, calls),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
