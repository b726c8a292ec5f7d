//! A libfabric of this process's own, whose offers are lines of a catalogue: for tests.
//!
//! ```text
//!   library(lines, open)     fi_getinfo ---> the lines of this thread that fit the hints
//!                            fi_fabric ----> `open`
//! ```

use libfabric_sys::abi::{
    FI_ADDR_CXI, FI_CONTEXT, FI_EINVAL, FI_ENODATA, FI_EP_RDM, FI_MR_ALLOCATED, FI_MR_ENDPOINT,
    FI_MR_PROV_KEY, FI_MSG, FI_MULTI_RECV, FI_ORDER_SAS, FI_READ, FI_RECV, FI_REMOTE_READ, FI_RMA,
    FI_SEND, FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_SOURCE, FI_TAGGED, fi_domain_attr, fi_ep_attr,
    fi_fabric_attr, fi_info, fi_rx_attr, fi_tx_attr, fi_version, fid_fabric,
};
use libfabric_sys::{Functions, Library};
use mx_port_fabric::source;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::net::IpAddr;
use std::ptr::null_mut;

/// One line of the catalogue.
#[derive(Clone)]
pub(crate) struct Line {
    pub provider: &'static str,
    pub source: Option<IpAddr>,
    pub caps: u64,
    pub mode: u64,
    pub mr_mode: c_int,
    pub ep_type: u32,
    pub domain: &'static str,
}

impl Line {
    pub(crate) fn tcp(source: &str) -> Self {
        Self {
            provider: "tcp",
            source: Some(source.parse().unwrap()),
            caps: FI_MSG | FI_SEND | FI_RECV | FI_MULTI_RECV | FI_TAGGED,
            mode: 0,
            mr_mode: 0,
            ep_type: FI_EP_RDM,
            domain: "lan0",
        }
    }

    pub(crate) fn cxi() -> Self {
        Self {
            provider: "cxi",
            source: None,
            caps: Self::tcp("::1").caps | FI_RMA | FI_READ | FI_REMOTE_READ,
            mr_mode: FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT,
            ..Self::tcp("::1")
        }
    }

    pub(crate) fn psm3() -> Self {
        Self {
            provider: "psm3",
            mode: FI_CONTEXT,
            mr_mode: 0,
            ..Self::cxi()
        }
    }
}

thread_local! {
    static CATALOGUE: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
    /// The answer of every query instead, if not 0.
    pub(super) static ANSWER: RefCell<c_int> = const { RefCell::new(0) };
}

/// Zeroed memory that `free` takes.
fn zeroed<T>() -> *mut T {
    // SAFETY: any size is allowed.
    let memory = unsafe { libc::calloc(1, size_of::<T>()) };
    assert!(!memory.is_null());
    memory.cast()
}

fn empty_info() -> *mut fi_info {
    let info: *mut fi_info = zeroed();
    // SAFETY: just allocated, and all zero is a value of it.
    let members = unsafe { &mut *info };
    members.tx_attr = zeroed::<fi_tx_attr>();
    members.rx_attr = zeroed::<fi_rx_attr>();
    members.ep_attr = zeroed::<fi_ep_attr>();
    members.domain_attr = zeroed::<fi_domain_attr>();
    members.fabric_attr = zeroed::<fi_fabric_attr>();
    info
}

fn duplicate(text: &str) -> *mut c_char {
    let text = CString::new(text).unwrap();
    // SAFETY: a C string.
    unsafe { libc::strdup(text.as_ptr()) }
}

fn socket_address(address: IpAddr) -> (u32, Vec<u8>) {
    let family = |family: c_int| (family as u16).to_ne_bytes();
    match address {
        IpAddr::V4(v4) => {
            let mut bytes = vec![0; 16];
            bytes[..2].copy_from_slice(&family(libc::AF_INET));
            bytes[4..8].copy_from_slice(&v4.octets());
            (FI_SOCKADDR_IN, bytes)
        }
        IpAddr::V6(v6) => {
            let mut bytes = vec![0; 28];
            bytes[..2].copy_from_slice(&family(libc::AF_INET6));
            bytes[8..24].copy_from_slice(&v6.octets());
            (FI_SOCKADDR_IN6, bytes)
        }
    }
}

fn info_of(line: &Line, caps: u64) -> *mut fi_info {
    let info = empty_info();
    // SAFETY: an info of our own with all its attributes, as for each below.
    let members = unsafe { &mut *info };
    members.caps = if caps == 0 { line.caps } else { caps };
    members.mode = line.mode;
    members.addr_format = FI_ADDR_CXI;
    if let Some(source) = line.source {
        let (format, bytes) = socket_address(source);
        members.addr_format = format;
        members.src_addrlen = bytes.len();
        // SAFETY: any size is allowed.
        members.src_addr = unsafe { libc::malloc(bytes.len()) };
        // SAFETY: as many bytes as were just allocated.
        unsafe { std::ptr::copy(bytes.as_ptr(), members.src_addr.cast(), bytes.len()) };
    }
    // SAFETY: as above.
    let tx = unsafe { &mut *members.tx_attr };
    // SAFETY: as above.
    let rx = unsafe { &mut *members.rx_attr };
    // SAFETY: as above.
    let ep = unsafe { &mut *members.ep_attr };
    // SAFETY: as above.
    let domain = unsafe { &mut *members.domain_attr };
    // SAFETY: as above.
    let fabric = unsafe { &mut *members.fabric_attr };
    (tx.msg_order, rx.msg_order) = (FI_ORDER_SAS, FI_ORDER_SAS);
    (tx.inject_size, tx.size, rx.size) = (100, 256, 256);
    (ep.r#type, ep.max_msg_size) = (line.ep_type, 1 << 30);
    domain.mr_mode = line.mr_mode;
    domain.name = duplicate(line.domain);
    fabric.prov_name = duplicate(line.provider);
    fabric.prov_version = fi_version(117, 3);
    info
}

unsafe extern "C" fn getinfo(
    _: u32,
    node: *const c_char,
    _: *const c_char,
    flags: u64,
    hints: *const fi_info,
    out: *mut *mut fi_info,
) -> c_int {
    let answer = ANSWER.with_borrow(|answer| *answer);
    if answer != 0 {
        return answer;
    }
    // SAFETY: null or a C string.
    let node = (!node.is_null()).then(|| unsafe { CStr::from_ptr(node) });
    assert_eq!(node.is_some(), flags & FI_SOURCE != 0);
    let node: Option<IpAddr> = node.map(|node| node.to_str().unwrap().parse().unwrap());
    // SAFETY: null or hints that `dupinfo` below made, attributes and all.
    let (caps, ep_type, name) = match unsafe { hints.as_ref() } {
        None => (0, 0, None),
        Some(hints) => {
            // SAFETY: as above.
            let ep_type = unsafe { (*hints.ep_attr).r#type };
            // SAFETY: as above; a C string that was set.
            let name = unsafe { CStr::from_ptr((*hints.fabric_attr).prov_name) };
            (hints.caps, ep_type, Some(name.to_str().unwrap()))
        }
    };
    let mut first: *mut fi_info = null_mut();
    let mut place = &raw mut first;
    CATALOGUE.with_borrow(|lines| {
        for line in lines {
            // As in libfabric, `tcp` also returns providers layered over it.
            let named = name.is_none_or(|name| line.provider.starts_with(name));
            let typed = ep_type == 0 || ep_type == line.ep_type;
            let there = node.is_none() || line.source.is_none() || line.source == node;
            if named && typed && there && line.caps & caps == caps {
                let info = info_of(line, caps);
                // SAFETY: the end of a list of our own.
                unsafe { place.write(info) };
                // SAFETY: as above.
                place = unsafe { &raw mut (*info).next };
            }
        }
    });
    if first.is_null() {
        return -FI_ENODATA;
    }
    // SAFETY: the caller's output.
    unsafe { out.write(first) };
    0
}

unsafe extern "C" fn freeinfo(info: *mut fi_info) {
    let mut info = info;
    // SAFETY: null, or an info of ours that is not used again.
    while let Some(members) = unsafe { info.as_ref() } {
        let next = members.next;
        // SAFETY: attributes of ours.
        let domain = unsafe { (*members.domain_attr).name };
        // SAFETY: as above.
        let provider = unsafe { (*members.fabric_attr).prov_name };
        for part in [
            members.src_addr,
            domain.cast(),
            provider.cast(),
            members.tx_attr.cast(),
            members.rx_attr.cast(),
            members.ep_attr.cast(),
            members.domain_attr.cast(),
            members.fabric_attr.cast(),
            info.cast(),
        ] {
            // SAFETY: null, or from `malloc` and the last use of it.
            unsafe { libc::free(part) };
        }
        info = next;
    }
}

unsafe extern "C" fn dupinfo(info: *const fi_info) -> *mut fi_info {
    // SAFETY: null, or an info of ours.
    let Some(original) = (unsafe { info.as_ref() }) else {
        return empty_info();
    };
    // SAFETY: attributes of ours, as for each below.
    let fabric = unsafe { &*original.fabric_attr };
    // SAFETY: as above.
    let domain = unsafe { &*original.domain_attr };
    // SAFETY: a C string of ours.
    let provider = unsafe { CStr::from_ptr(fabric.prov_name) }
        .to_str()
        .unwrap();
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(domain.name) }.to_str().unwrap();
    let bytes = original.src_addr.cast::<u8>();
    let source = (!bytes.is_null()).then(|| {
        // SAFETY: the address of an info of ours.
        source(unsafe { std::slice::from_raw_parts(bytes, original.src_addrlen) }).unwrap()
    });
    let line = CATALOGUE.with_borrow(|lines| {
        let same = |line: &&Line| {
            line.provider == provider && line.source == source && line.domain == name
        };
        lines.iter().find(same).unwrap().clone()
    });
    info_of(&line, original.caps)
}

unsafe extern "C" fn version() -> u32 {
    fi_version(2, 0)
}

unsafe extern "C" fn strerror(code: c_int) -> *const c_char {
    match code {
        FI_EINVAL => c"Invalid argument".as_ptr(),
        _ => c"something else".as_ptr(),
    }
}

/// A library with these offers, on this thread.
///
/// # Safety
///
/// `fabric` does what `fi_fabric` does.
pub(crate) unsafe fn library(lines: &[Line], fabric: OpenFabric) -> Library {
    CATALOGUE.with_borrow_mut(|catalogue| *catalogue = lines.to_vec());
    let functions = Functions {
        getinfo,
        freeinfo,
        dupinfo,
        fabric,
        version,
        strerror,
    };
    // SAFETY: they do what libfabric's do, as far as the tests go; `fabric` by the caller's word.
    unsafe { Library::from_functions(functions) }
}

/// `fi_fabric`.
pub(crate) type OpenFabric =
    unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;
