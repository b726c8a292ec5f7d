//! Pins a thread to one core, so that a measurement and its reference run under equal conditions.

/// Pins the calling thread to core `core` modulo the number of cores. Does nothing without the
/// permission, or with a single core.
pub(crate) fn to_core(core: usize) {
    // Of the machine: what `available_parallelism` tells shrinks with the first pinning.
    // SAFETY: takes no pointers.
    let cores = usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1);
    let cores = cores.max(1);
    // SAFETY: an all-zero cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `core % cores` is below CPU_SETSIZE on every machine with fewer than 1024 cores; the
    // macro itself ignores larger ones.
    unsafe { libc::CPU_SET(core % cores, &mut set) };
    // SAFETY: `set` is a valid set of the size given.
    let _ = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
}
