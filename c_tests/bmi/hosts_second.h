/*
 * One of two hosts in a process: the operations that hosts.c performs with each, compiled once for either table.
 *
 *     hosts.c ── half_orangefs.so ──── its own host.c ──── table of libbmi_mx
 *             └── half_standalone.so ── its own host.c ──── table of libbmi_mx_standalone
 */
#ifndef C_TESTS_HOSTS_HALF_H
#define C_TESTS_HOSTS_HALF_H

struct half {
    /* Sets the library's bmi_mx_ops. Called before everything else. */
    void (*use)(const void *table);
    /* Initializes a server; returns its endpoint. */
    int (*serve)(void);
    /* Initializes a client of that endpoint. */
    void (*join)(int endpoint);
    /* Answers `turns` requests, each with data of another size. */
    void (*answer)(int turns);
    void (*ask)(int turns);
    /* Finalizes. Reports breaches of the rules for callbacks, too: each library must call its own host's. */
    void (*stop)(void);
};

#endif
