/*
 * One of two hosts in a process: what hosts.c does with each, compiled once for either.
 *
 *     hosts.c ── half_orangefs.so ──── its own host.c ──── table of libbmi_mx
 *            └── half_standalone.so ── its own host.c ──── table of libbmi_mx_standalone
 */
#ifndef C_TESTS_HOSTS_HALF_H
#define C_TESTS_HOSTS_HALF_H

struct half {
    /* Before everything else: the library's bmi_mx_ops. */
    void (*use)(const void *table);
    /* Server; its endpoint. */
    int (*serve)(void);
    /* Client of that endpoint. */
    void (*join)(int endpoint);
    /* So many requests, each answered with data of another size. */
    void (*answer)(int turns);
    void (*ask)(int turns);
    /* Also reports breaches of the rules for callbacks: each library must call its own host's. */
    void (*stop)(void);
};

#endif
