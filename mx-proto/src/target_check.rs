//! Machines that nothing here is for. Every crate of ours needs this one, so they are refused once, first.
//!
//! Lengths of messages are of 64 bits and are used as lengths in memory; no big-endian machine ever ran this.
//! Tested by `testing/lints`.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "libbmi_mx and libmyriexpress are for 64-bit machines: this target has shorter addresses"
);

#[cfg(not(target_endian = "little"))]
compile_error!(
    "libbmi_mx and libmyriexpress are for little-endian machines: this target is big-endian"
);
