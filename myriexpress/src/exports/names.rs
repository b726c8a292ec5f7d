//! Host names, boards, NIC ids, and `mx_get_info`.
//!
//! Out of scope: looking names up (`names`), properties of a board (`info`).

use crate::abi::{MX_MAX_HOSTNAME_LEN, mx_endpoint_t, mx_get_info_key_t, mx_return_t};
use crate::boundary::{coded, export, required_or};
use crate::error::{Code, Error};
use crate::handles::EndpointHandle;
use crate::info::{self, Which};
use crate::{library, names};
use libc::{c_char, c_void};
use mx_boundary::{required, string};
use mx_proto::NicId;

/// Longest name that is read, in bytes; DNS names end at 253.
const HOSTNAME_LIMIT: usize = 1024;

export! {
    /// Resolves `host` or `host:board` by the peers file, then the resolver, which may use the network, and stores the
    /// NIC id in `*nic_id`.
    pub unsafe extern "C" fn mx_hostname_to_nic_id(
        hostname: *mut c_char,
        nic_id: *mut u64,
    ) -> mx_return_t {
        let code = Code::BadHostnameArgs;
        let nic_id = required_or(code, "nic_id", nic_id)?;
        // SAFETY: null or a C string, which outlives the call.
        let hostname = unsafe { string("hostname", hostname, HOSTNAME_LIMIT) };
        let hostname = hostname.map_err(coded(code))?;
        library::settings()?;
        let found = names::nic_id(hostname)?;
        // SAFETY: a writable output of C; checked above.
        unsafe { nic_id.write(found.0) };
        Ok(())
    }

    /// Stores the NIC id of a board of this machine in `*nic_id`. `MX_BOARD_UNKNOWN` if there is no such board.
    pub unsafe extern "C" fn mx_board_number_to_nic_id(
        board_number: u32,
        nic_id: *mut u64,
    ) -> mx_return_t {
        let nic_id = required("nic_id", nic_id)?;
        library::settings()?;
        let found = names::of_board(board_number)?;
        // SAFETY: a writable output of C; checked above.
        unsafe { nic_id.write(found.0) };
        Ok(())
    }

    /// Stores the number of this machine's board with that NIC id in `*board_number`. `MX_NIC_NOT_FOUND` for other
    /// machines.
    pub unsafe extern "C" fn mx_nic_id_to_board_number(
        nic_id: u64,
        board_number: *mut u32,
    ) -> mx_return_t {
        let board_number = required("board_number", board_number)?;
        library::settings()?;
        let found = names::board_number(NicId(nic_id))?;
        // SAFETY: a writable output of C; checked above.
        unsafe { board_number.write(found) };
        Ok(())
    }

    /// Writes `host:board`, the name of a NIC id, to `hostname`, which has room for `MX_MAX_HOSTNAME_LEN` bytes.
    pub unsafe extern "C" fn mx_nic_id_to_hostname(
        nic_id: u64,
        hostname: *mut c_char,
    ) -> mx_return_t {
        let hostname = required_or(Code::BadHostnameArgs, "hostname", hostname)?;
        library::settings()?;
        let mut name = names::hostname(NicId(nic_id))?.into_bytes();
        // Names fit by contract. Should one not, a truncated name is wrong, but overwrites nothing.
        name.truncate(MX_MAX_HOSTNAME_LEN - 1);
        name.push(0);
        // SAFETY: C provides MX_MAX_HOSTNAME_LEN bytes, and these are no more.
        unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), hostname.as_ptr().cast(), name.len()) };
        Ok(())
    }

    /// Answers a query about the library, an endpoint or a board: writes the value of `key` to `out_val`, which has
    /// room for `out_len` bytes. `in_val` selects the board by its number (`in_len` 1 or 4) or NIC id (`in_len` 8);
    /// NULL selects the endpoint's, or without an endpoint the first.
    pub unsafe extern "C" fn mx_get_info(
        ep: mx_endpoint_t,
        key: mx_get_info_key_t,
        in_val: *mut c_void,
        in_len: u32,
        out_val: *mut c_void,
        out_len: u32,
    ) -> mx_return_t, of ep {
        let key = info::key(key)?;
        let out = required_or(Code::BadInfoVal, "out_val", out_val.cast::<u8>())?;
        let endpoint = (!ep.is_null()).then(|| EndpointHandle::from(ep));
        // SAFETY: null or `in_len` bytes, by the contract.
        let which = unsafe { which_board(in_val.cast(), in_len) }?;
        let answer = info::answer(key, endpoint, which)?;
        let bytes = answer.fitting(out_len as usize)?;
        // SAFETY: C provides `out_len` bytes, and these are no more.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.as_ptr(), bytes.len()) };
        Ok(())
    }
}

/// Returns the board that `in_val` names.
///
/// # Safety
///
/// `value` is null or `len` bytes long.
unsafe fn which_board(value: *const u8, len: u32) -> Result<Which, Error> {
    if value.is_null() {
        return Ok(Which::Usual);
    }
    // The value may be misaligned.
    match len {
        0 => Ok(Which::Usual),
        // SAFETY: `len` bytes are readable.
        1 => Ok(Which::Number(unsafe { value.read() }.into())),
        // SAFETY: `len` bytes are readable.
        4 => Ok(Which::Number(unsafe {
            value.cast::<u32>().read_unaligned()
        })),
        // SAFETY: `len` bytes are readable.
        8 => Ok(Which::Nic(NicId(unsafe {
            value.cast::<u64>().read_unaligned()
        }))),
        other => {
            let text = format!("in_len is {other}; a board has 1, 4 or 8 bytes");
            Err(Error::new(Code::BadInfoLength, text))
        }
    }
}
