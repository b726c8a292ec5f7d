//! The choice, from a catalogue of offers that is put together here, and from what is installed.

use super::*;
use libfabric_sys::Functions;
use libfabric_sys::abi::{
    FI_ADDR_CXI, FI_CONTEXT, FI_EINVAL, FI_EP_DGRAM, FI_MR_ALLOCATED, FI_MR_ENDPOINT,
    FI_MR_PROV_KEY, FI_SOCKADDR_IN, FI_SOCKADDR_IN6, fi_domain_attr, fi_ep_attr, fi_fabric_attr,
    fi_info, fi_rx_attr, fi_tx_attr, fi_version, fid_fabric,
};
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::slice;

/// One line of the catalogue.
#[derive(Clone)]
struct Line {
    provider: &'static str,
    source: Option<IpAddr>,
    caps: u64,
    mode: u64,
    mr_mode: c_int,
    ep_type: u32,
    domain: &'static str,
}

impl Line {
    fn tcp(source: &str) -> Self {
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

    fn cxi() -> Self {
        Self {
            provider: "cxi",
            source: None,
            caps: Self::tcp("::1").caps | FI_RMA | FI_READ | FI_REMOTE_READ,
            mr_mode: FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT,
            ..Self::tcp("::1")
        }
    }

    fn psm3() -> Self {
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
    /// What every query answers instead, if not 0.
    static ANSWER: RefCell<c_int> = const { RefCell::new(0) };
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
    (tx.iov_limit, rx.iov_limit) = (4, 4);
    (ep.r#type, ep.max_msg_size) = (line.ep_type, 1 << 30);
    domain.mr_mode = line.mr_mode;
    domain.ep_cnt = 256;
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
            // As in libfabric, `tcp` also brings what is layered over it.
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
        source(unsafe { slice::from_raw_parts(bytes, original.src_addrlen) }).unwrap()
    });
    let line = CATALOGUE.with_borrow(|lines| {
        let same = |line: &&Line| {
            line.provider == provider && line.source == source && line.domain == name
        };
        lines.iter().find(same).unwrap().clone()
    });
    info_of(&line, original.caps)
}

unsafe extern "C" fn fabric(
    _: *mut fi_fabric_attr,
    _: *mut *mut fid_fabric,
    _: *mut c_void,
) -> c_int {
    unreachable!("nothing is opened here")
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

fn library(lines: &[Line]) -> Library {
    CATALOGUE.with_borrow_mut(|catalogue| *catalogue = lines.to_vec());
    let functions = Functions {
        getinfo,
        freeinfo,
        dupinfo,
        fabric,
        version,
        strerror,
    };
    // SAFETY: as far as queries go they do what libfabric's do.
    unsafe { Library::from_functions(functions) }
}

fn make(lines: &[Line], options: &RdmOptions) -> Result<Choice, RdmError> {
    Choice::make(&library(lines), options)
}

fn named(provider: &str) -> RdmOptions {
    RdmOptions {
        provider: Some(provider.into()),
        ..RdmOptions::default()
    }
}

fn at_address(bind: &str) -> RdmOptions {
    RdmOptions {
        bind: Some(bind.parse().unwrap()),
        ..RdmOptions::default()
    }
}

/// Where the chosen endpoint will be.
fn source_of(choice: &Choice) -> String {
    let first = choice.info.first().unwrap();
    source(first.src_addr()).unwrap().to_string()
}

#[test]
fn hardware_is_chosen_before_tcp_whatever_the_order_of_offers() {
    let rxm = Line {
        provider: "tcp;ofi_rxm",
        ..Line::tcp("10.0.0.1")
    };
    let lines = [
        rxm.clone(),
        Line::tcp("10.0.0.1"),
        Line::psm3(),
        Line::cxi(),
    ];
    let order = ["cxi", "psm3", "tcp", "tcp;ofi_rxm"];
    for (skip, expected) in order.iter().enumerate() {
        let lines: Vec<_> = lines
            .iter()
            .filter(|line| !order[..skip].contains(&line.provider))
            .cloned()
            .collect();
        let choice = make(&lines, &RdmOptions::default()).unwrap();
        assert_eq!(choice.provider(), *expected);
    }
}

#[test]
fn only_what_will_be_used_is_asked_for() {
    let options = RdmOptions::default();
    let caps = |line| {
        make(&[line], &options)
            .unwrap()
            .info
            .first()
            .unwrap()
            .caps()
    };
    assert_eq!(caps(Line::cxi()) & (FI_RMA | FI_TAGGED), FI_RMA);
    // Its reads are not real, so messages are all there is to ask for.
    assert_eq!(caps(Line::psm3()) & (FI_RMA | FI_TAGGED), 0);
    assert_eq!(
        caps(Line::tcp("10.0.0.1")) & (FI_RMA | FI_TAGGED),
        FI_TAGGED
    );
}

#[test]
fn what_a_provider_lacks_is_done_without() {
    let mut line = Line::tcp("10.0.0.1");
    line.caps &= !FI_TAGGED;
    let plan = make(&[line.clone()], &RdmOptions::default()).unwrap().plan;
    assert_eq!((plan.large, plan.multi_recv), (Large::Copied, true));
    line.caps &= !FI_MULTI_RECV;
    let plan = make(&[line.clone()], &RdmOptions::default()).unwrap().plan;
    assert_eq!((plan.large, plan.multi_recv), (Large::Copied, false));
    line.caps &= !FI_MSG;
    assert!(make(&[line], &RdmOptions::default()).is_err());
}

#[test]
fn the_address_that_most_peers_can_reach_comes_first() {
    let order = [
        "10.0.0.2",
        "10.0.0.1",
        "fd00::2",
        "127.0.0.1",
        "::1",
        "fe80::1",
        "169.254.0.1",
    ];
    let mut lines: Vec<_> = order.iter().map(|source| Line::tcp(source)).collect();
    // Among equals the provider's order counts, otherwise it does not.
    lines.swap(0, 6);
    let expected = ["10.0.0.1", "10.0.0.2", "fd00::2", "127.0.0.1", "::1"];
    for source in expected {
        let choice = make(&lines, &RdmOptions::default()).unwrap();
        assert_eq!(source_of(&choice), source);
        lines.retain(|line| line.source != source.parse().ok());
    }
}

#[test]
fn an_address_to_bind_to_is_kept_to() {
    let lines = [Line::tcp("10.0.0.1"), Line::tcp("127.0.0.1")];
    let choice = make(&lines, &at_address("127.0.0.1")).unwrap();
    assert_eq!(source_of(&choice), "127.0.0.1");
    let error = make(&lines[..1], &at_address("127.0.0.1")).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "no libfabric provider as asked for (any provider at 127.0.0.1); found tcp: refused, \
             it has nothing at 127.0.0.1, but elsewhere on this host; install"
        ),
        "{error}"
    );
    // An address of documentation, so nobody's.
    let options = RdmOptions {
        provider: Some("tcp".into()),
        ..at_address("203.0.113.1")
    };
    assert!(make(&lines, &options).unwrap_err().to_string().starts_with(
        "provider tcp cannot be used: 203.0.113.1 is not an address of this host; set"
    ));
    // Without IP addresses there is nothing to bind to.
    let choice = make(&[Line::cxi()], &at_address("203.0.113.1")).unwrap();
    assert_eq!(choice.provider(), "cxi");
}

#[test]
fn an_offer_that_does_not_say_where_it_is_cannot_be_used() {
    let nowhere = Line {
        source: None,
        ..Line::tcp("::1")
    };
    for line in [Line::tcp("0.0.0.0"), Line::tcp("::"), nowhere] {
        assert_eq!(
            make(slice::from_ref(&line), &named("tcp"))
                .unwrap_err()
                .to_string(),
            "provider tcp cannot be used: it does not say at which address it is; set MX_PROVIDER \
             to another or unset it"
        );
        let choice = make(&[line, Line::tcp("::1")], &named("tcp")).unwrap();
        assert_eq!(source_of(&choice), "::1");
    }
}

#[test]
fn a_forced_name_is_exact() {
    let rxm = Line {
        provider: "tcp;ofi_rxm",
        ..Line::tcp("10.0.0.1")
    };
    // The library brings what is layered over `tcp` too.
    let error = make(slice::from_ref(&rxm), &named("tcp")).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "no libfabric provider as asked for (tcp); found tcp;ofi_rxm: chosen, inject up to 100"
        ),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("; MX_PROVIDER can be tcp;ofi_rxm")
    );
    let choice = make(&[Line::cxi(), rxm], &named("tcp;ofi_rxm")).unwrap();
    assert_eq!(choice.provider(), "tcp;ofi_rxm");
    assert!(make(&[Line::cxi()], &named("c\0xi")).is_err());
    assert!(make(&[Line::cxi()], &named("")).is_err());
}

#[test]
fn a_name_that_is_never_used_is_not_even_asked_for() {
    ANSWER.set(-FI_EINVAL);
    assert_eq!(
        make(&[], &named("net;ofi_rxm")).unwrap_err().to_string(),
        "provider net;ofi_rxm is not used: it stops after the first unmatched message, and 1.18 \
         removed it; use tcp; unset MX_PROVIDER"
    );
}

#[test]
fn only_hardware_means_only_hardware() {
    let lines = [Line::tcp("10.0.0.1")];
    let mut options = RdmOptions {
        hardware_only: true,
        ..RdmOptions::default()
    };
    let error = make(&lines, &options).unwrap_err().to_string();
    assert!(
        error.starts_with("no libfabric provider as asked for (fabric hardware)"),
        "{error}"
    );
    options.provider = Some("tcp".into());
    assert_eq!(
        make(&lines, &options).unwrap_err().to_string(),
        "provider tcp is not used: it is software, and only hardware is wanted; unset MX_PROVIDER"
    );
    options.provider = None;
    assert_eq!(make(&[Line::cxi()], &options).unwrap().provider(), "cxi");
}

#[test]
fn a_provider_without_a_name_in_our_list_can_be_asked_for() {
    let other = Line {
        provider: "ucx",
        ..Line::psm3()
    };
    assert!(make(slice::from_ref(&other), &RdmOptions::default()).is_err());
    assert_eq!(make(&[other], &named("ucx")).unwrap().provider(), "ucx");
}

#[test]
fn a_query_that_fails_is_the_reason() {
    ANSWER.set(-FI_EINVAL);
    assert_eq!(
        make(&[], &named("tcp")).unwrap_err().to_string(),
        "provider tcp cannot be used: fi_getinfo: Invalid argument (22); set MX_PROVIDER to \
         another or unset it"
    );
    let error = make(&[], &RdmOptions::default()).unwrap_err().to_string();
    assert!(error.contains("found none at all"), "{error}");
}

#[test]
fn the_survey_has_every_provider_once_with_its_verdict() {
    let datagrams = Line {
        provider: "psm2",
        ep_type: FI_EP_DGRAM,
        ..Line::psm3()
    };
    let shm = Line {
        provider: "shm",
        ..Line::psm3()
    };
    let lines = [
        Line::tcp("10.0.0.1"),
        Line::tcp("10.0.0.2"),
        shm,
        Line::cxi(),
        datagrams,
    ];
    let findings = survey(&library(&lines));
    let texts: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 4, "{texts:#?}");
    assert_eq!(
        texts[0],
        "tcp: usable, inject up to 100, slots of 32768, multi receive, large messages over lanes"
    );
    assert!(texts[1].starts_with("shm: refused, a message longer than its receive hangs it"));
    assert!(texts[2].starts_with("cxi: chosen, "));
    assert_eq!(
        texts[3],
        "psm2: refused, it has no reliable datagram endpoints with ordered messages"
    );
    assert!(findings.iter().all(|finding| finding.version == (117, 3)));
}

#[test]
fn the_installed_library_has_a_provider_for_this_host() {
    let library = match Library::get() {
        Ok(library) => library,
        Err(error) => panic!("this test needs a libfabric: {error}"),
    };
    let choice = Choice::make(library, &at_address("127.0.0.1")).unwrap();
    let findings = survey(library);
    println!("{library:?}");
    findings.iter().for_each(|finding| println!("  {finding}"));
    let found = |name: &str| findings.iter().find(|finding| finding.provider == name);
    assert!(found(choice.provider()).is_some());
    let chosen = |finding: &&Finding| finding.verdict == Verdict::Chosen;
    assert_eq!(findings.iter().filter(chosen).count(), 1);
    // Debian's has these too, and neither is ever used.
    for name in ["shm", "sockets"] {
        let refused = found(name).is_none_or(|it| matches!(it.verdict, Verdict::Refused(_)));
        assert!(refused, "{name}");
        let error = Choice::make(library, &named(name)).unwrap_err();
        assert!(matches!(error, RdmError::Refused { .. }), "{error}");
    }
    let error = Choice::make(library, &named("no such provider")).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("(no such provider); found ") && text.contains("MX_PROVIDER can be"));
    // Of the documentation, so not this host's.
    let error = Choice::make(library, &at_address("203.0.113.1"));
    if let Ok(choice) = &error {
        assert!(
            !has_ip_addresses(choice.provider()),
            "{}",
            choice.provider()
        );
    }
}
