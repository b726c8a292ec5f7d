//! Keeps a thread on one core, so that a measurement and its reference run under equal conditions.

/// Pins the calling thread to core `core` modulo the number of cores. Without the permission, or
/// with a single core, nothing happens.
pub(crate) fn to_core(core: usize) {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // SAFETY: an all-zero cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `core % cores` is below CPU_SETSIZE on every machine with fewer than 1024 cores; the
    // macro itself ignores larger ones.
    unsafe { libc::CPU_SET(core % cores, &mut set) };
    // SAFETY: `set` is a valid set of the size given.
    let _ = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
}
