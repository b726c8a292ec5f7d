//! Check of the target: machines for which this code is not written are rejected. All our crates depend on this one.
//!
//! Lengths of messages have 64 bits and are used as lengths in memory; this code has never run on a big-endian machine.
//! Tested by `testing/lints`.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "libbmi_mx and libmyriexpress are for 64-bit machines: this target has shorter addresses"
);

#[cfg(not(target_endian = "little"))]
compile_error!(
    "libbmi_mx and libmyriexpress are for little-endian machines: this target is big-endian"
);
