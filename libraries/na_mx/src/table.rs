//! The table of operations that Mercury finds in the plugin.
//!
//! ```text
//!   loaded --> libna's version --> functions, in the order of that version --> na_mx_class_ops_g
//! ```
//!
//! The table is complete when the plugin has been loaded, and does not change afterwards.
//!
//! Owns: the exported table.
//! Out of scope: the functions (`calls`).

use crate::calls::address::*;
use crate::calls::class::*;
use crate::calls::memory::*;
use crate::calls::message::*;
use crate::calls::polling::*;
use crate::libna::{self, Layout};
use libc::c_void;
use mx_boundary::caught;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A pointer to a function of the table.
type Entry = AtomicPtr<c_void>;

/// Mercury's `na_class_ops`: the class name, then functions in the order of the installed libna's version, stored when
/// the plugin is loaded.
#[repr(C)]
pub struct Table {
    class_name: &'static CStr1,
    entries: [Entry; ENTRIES],
}

/// First byte of a C string.
#[repr(transparent)]
pub(crate) struct CStr1(u8);

/// Number of entries after the name in the longest table.
const ENTRIES: usize = 51;

static NAME: [CStr1; 3] = [CStr1(b'm'), CStr1(b'x'), CStr1(0)];

/// The table, under the name that Mercury looks up.
// SAFETY: a name of the plugin's own, which Mercury expects.
#[unsafe(no_mangle)]
pub static na_mx_class_ops_g: Table = Table {
    class_name: &NAME[0],
    entries: [const { Entry::new(ptr::null_mut()) }; ENTRIES],
};

/// Fills the table. Without a supported libna the plugin reports that it supports no protocol.
pub(crate) fn fill() {
    mx_sys::StderrLogger::start();
    let layout = caught("load", libna::look).flatten();
    let functions = layout.map_or_else(unusable, functions);
    for (entry, function) in na_mx_class_ops_g.entries.iter().zip(functions) {
        entry.store(function.cast_mut(), Ordering::Release);
    }
}

/// Lists functions as pointers, in the order of the table.
macro_rules! pointers {
    ($($name:ident)*) => { [$($name as *const c_void),*] };
}

/// An omitted function.
const NONE: *const c_void = ptr::null();

/// Returns the functions that Mercury calls before it has chosen a plugin.
fn unusable() -> Vec<*const c_void> {
    pointers![NONE check_protocol initialize].into()
}

/// Returns the functions in the order of a layout. Omitted, as in Mercury's own plugins: `cleanup`, sizes of headers,
/// which are 0, and message buffers, which are ordinary memory. `addr_deserialize` ignores its flags, the last argument
/// in the newest layout.
fn functions(layout: Layout) -> Vec<*const c_void> {
    let [context] = match layout {
        Layout::A | Layout::B => pointers![context_create_in],
        Layout::C => pointers![context_create],
    };
    let polling: &[_] = match layout {
        Layout::A => &pointers![progress cancel],
        Layout::B | Layout::C => &pointers![poll poll_wait cancel],
    };
    let fixed = pointers![
        get_protocol_info check_protocol initialize finalize NONE has_opt_feature
        context context_destroy op_create op_destroy
        addr_lookup addr_free addr_set_remove addr_self addr_dup addr_cmp addr_is_self addr_to_string
        addr_get_serialize_size addr_serialize addr_deserialize
        msg_get_max_unexpected_size msg_get_max_expected_size NONE NONE msg_get_max_tag NONE NONE
        NONE msg_send_unexpected msg_recv_unexpected msg_multi_recv_unexpected
        NONE msg_send_expected msg_recv_expected
        mem_handle_create mem_handle_create_segments mem_handle_free mem_handle_get_max_segments
        mem_register mem_deregister mem_handle_get_serialize_size mem_handle_serialize mem_handle_deserialize
        put get poll_get_fd poll_try_wait
    ];
    [&fixed, polling].concat()
}
