//! Endpoints: opening, binding, enabling, names, options, cancelling, closing.
//!
//! ```text
//!   fi_endpoint --> bind(CQ, AV) --> enable --> posts ... --> close: everything lent is returned
//!                                      |
//!                                  own address
//! ```
//!
//! Owns: the record of an endpoint and the C calls on it.
//! Out of scope: how messages move.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::sync::Arc;

use libc::c_int;
use libfabric_sys::abi::*;

use crate::datagram::Held;
use crate::finishing::Finish;
use crate::landing::Transfer;
use crate::objects::{Id, code, enter, identify};
use crate::remote::Remote;
use crate::shape::Shape;
use crate::state::{Message, State};
use crate::vector::give_address;

#[derive(Default)]
pub(crate) struct Endpoint {
    pub(crate) domain: Id,
    pub(crate) machine: usize,
    pub(crate) offer: usize,
    pub(crate) shape: Arc<Shape>,
    pub(crate) caps: u64,
    pub(crate) tx_size: usize,
    pub(crate) rx_size: usize,
    pub(crate) address: Vec<u8>,
    pub(crate) enabled: bool,
    /// Killed: calls no longer have an effect.
    pub(crate) dead: bool,
    /// Completion queues of the endpoint.
    pub(crate) transmit: Option<Id>,
    pub(crate) receive: Option<Id>,
    pub(crate) vector: Option<Id>,
    pub(crate) least_multi: usize,

    /// Posted receives without a message, in the order of posting.
    pub(crate) posted: VecDeque<u64>,
    /// Messages without a receive, in the order of arrival, with their number for each sender.
    pub(crate) arrived: VecDeque<Message>,
    pub(crate) arrived_from: BTreeMap<Id, usize>,
    /// Whether receives were posted since messages were last matched.
    pub(crate) look_again: bool,
    /// Messages with a receive that have not been written yet.
    pub(crate) landing: Vec<Transfer>,
    pub(crate) remote: Vec<Remote>,
    /// Finished operations without a completion yet.
    pub(crate) finishing: Vec<Finish>,
    /// Datagrams posted with `FI_MORE`.
    pub(crate) held: Vec<Held>,
    /// Unfinished sends, injects and reads.
    pub(crate) outstanding: usize,
    /// Number of further posts that return `-FI_EAGAIN`.
    pub(crate) storm: u32,
}

/// Value of `FI_OPT_MIN_MULTI_RECV` until it is set.
const LEAST_MULTI: usize = 64;

impl State {
    pub(crate) fn endpoints_of(&self, queue: Id) -> Vec<Id> {
        let uses = |(id, ep): (&Id, &Endpoint)| {
            [ep.transmit, ep.receive]
                .contains(&Some(queue))
                .then_some(*id)
        };
        self.endpoints.iter().filter_map(uses).collect()
    }

    pub(crate) fn queues_of(&self, ep: Id) -> Vec<Id> {
        let Some(ep) = self.endpoints.get(&ep) else {
            return Vec::new();
        };
        let both = [ep.transmit, ep.receive];
        let mut queues: Vec<Id> = both.into_iter().flatten().collect();
        queues.dedup();
        queues
    }

    /// Returns the endpoint at an address, within this provider's network.
    pub(crate) fn resident(&self, offer: usize, address: &[u8]) -> Option<Id> {
        let is_it =
            |ep: &Endpoint| ep.enabled && !ep.dead && ep.offer == offer && ep.address == address;
        self.endpoints
            .iter()
            .find(|(_, ep)| is_it(ep))
            .map(|(id, _)| *id)
    }

    /// Ends an endpoint before it is removed.
    pub(crate) fn end_endpoint(&mut self, id: Id) {
        for region in self.regions.values_mut() {
            region.enabled &= region.ep != Some(id);
        }
        let (shape, dead) = (self.ep(id).shape.clone(), self.ep(id).dead);
        if !dead {
            self.on_gone(id, shape.peer_gone);
        }
        self.take_back(id, shape.close_flush && !dead);
    }

    /// Returns an unused address.
    fn new_address(&mut self, shape: &Shape, wanted: &[u8]) -> Vec<u8> {
        self.addresses += 1;
        let number = self.addresses;
        if shape.address_format == FI_SOCKADDR_IN {
            let mut address = crate::hints::sockaddr_in(std::net::Ipv4Addr::LOCALHOST, 0);
            if wanted.len() == address.len() {
                address.copy_from_slice(wanted);
            }
            // Ports run from 1024 upwards; a test does not open sixty thousand endpoints.
            let port = 1024 + (number % 64_000) as u16;
            address[2..4].copy_from_slice(&port.to_be_bytes());
            return address;
        }
        // Every byte is significant in comparisons, and none is zero.
        let byte = |index: usize| match index {
            0..4 => number.to_be_bytes()[index] | 0x80,
            _ => (number as usize * 31 + index * 7) as u8 | 1,
        };
        let mut address: Vec<u8> = (0..shape.address_len).map(byte).collect();
        if matches!(shape.address_format, FI_ADDR_IB_UD | FI_ADDR_EFA) {
            // Identifier of the adapter, the only one.
            address[..16].fill(0xfe);
        }
        if let Some(end) = address.len().checked_sub(4) {
            address[end..].copy_from_slice(&number.to_be_bytes());
        }
        address
    }
}

pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    let open = |state: &mut State, id: Id| {
        // SAFETY: an info or null, by the call's contract.
        let Some(info) = (unsafe { info.as_ref() }) else {
            return code(FI_EINVAL);
        };
        let domain = &state.domains[&id];
        let (machine, offer) = (domain.machine, domain.offer);
        let shape = domain.shape.clone();
        // SAFETY: an info's attributes are null or valid; so below.
        let tx = unsafe { info.tx_attr.as_ref() }.map(|tx| (tx.size, tx.inject_size));
        // SAFETY: as above.
        let rx = unsafe { info.rx_attr.as_ref() }.map_or(0, |rx| rx.size);
        let ((tx_size, inject), rx_size) = (tx.unwrap_or_default(), rx);
        if tx_size > shape.tx_depth || rx_size > shape.rx_depth || inject > shape.inject {
            return state.violated(
                FI_EINVAL,
                "fi_endpoint with more than was offered".to_owned(),
            );
        }
        if info.caps & !shape.caps != 0 {
            return state.violated(
                FI_EINVAL,
                "fi_endpoint with capabilities that were not offered".to_owned(),
            );
        }
        let wanted = if info.src_addr.is_null() {
            &[]
        } else {
            // SAFETY: an info's address has the length it says.
            unsafe { std::slice::from_raw_parts(info.src_addr.cast::<u8>(), info.src_addrlen) }
        };
        let chosen = wanted.len() == shape.address_len
            && if shape.address_format == FI_SOCKADDR_IN {
                wanted[2..4] != [0, 0]
            } else {
                wanted.iter().any(|byte| *byte != 0)
            };
        let address = if chosen {
            wanted.to_vec()
        } else {
            state.new_address(&shape, wanted)
        };
        let (ep, pointer) = state.opened(FI_CLASS_EP, Some(id), context);
        let depth = |asked: usize, most: usize| if asked == 0 { most } else { asked };
        state.endpoints.insert(
            ep,
            Endpoint {
                domain: id,
                machine,
                offer,
                caps: if info.caps == 0 {
                    shape.caps
                } else {
                    info.caps
                },
                tx_size: depth(tx_size, shape.tx_depth),
                rx_size: depth(rx_size, shape.rx_depth),
                address,
                least_multi: LEAST_MULTI,
                shape,
                ..Endpoint::default()
            },
        );
        // SAFETY: an output, by the call's contract.
        unsafe { out.write(pointer.cast()) };
        0
    };
    // SAFETY: an object of a fake.
    unsafe { enter(domain.cast(), FI_CLASS_DOMAIN, "fi_endpoint", open) as c_int }
}

pub(crate) unsafe extern "C" fn bind(object: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: an object of a fake, or null.
    let other = unsafe { identify(other.cast()) };
    let bind = |state: &mut State, id: Id| {
        let Some((other, class)) = other.filter(|(other, _)| state.is_open(*other)) else {
            return state.violated(
                FI_EINVAL,
                format!("fi_ep_bind of endpoint {id} to what is not open"),
            );
        };
        let ep = state.ep(id);
        if ep.enabled {
            return state.violated(
                FI_EOPBADSTATE,
                format!("fi_ep_bind of endpoint {id}, which is enabled"),
            );
        }
        match class {
            FI_CLASS_CQ if flags & (FI_TRANSMIT | FI_RECV) != 0 => {
                if flags & FI_TRANSMIT != 0 {
                    ep.transmit = Some(other);
                }
                if flags & FI_RECV != 0 {
                    ep.receive = Some(other);
                }
                0
            }
            FI_CLASS_AV => {
                ep.vector = Some(other);
                0
            }
            _ => state.violated(
                FI_EINVAL,
                format!("fi_ep_bind to class {class} with flags {flags:#x}"),
            ),
        }
    };
    // SAFETY: an object of a fake.
    unsafe { enter(object.cast(), FI_CLASS_EP, "fi_ep_bind", bind) as c_int }
}

pub(crate) unsafe extern "C" fn control(
    object: *mut fid,
    command: c_int,
    _arg: *mut c_void,
) -> c_int {
    let enable = |state: &mut State, id: Id| {
        if command != FI_ENABLE {
            return code(FI_ENOSYS);
        }
        let ep = state.ep(id);
        if ep.transmit.is_none() || ep.receive.is_none() {
            return state.violated(
                FI_ENOCQ,
                format!("fi_enable of endpoint {id} without completion queue"),
            );
        }
        if ep.vector.is_none() {
            return state.violated(
                FI_ENOAV,
                format!("fi_enable of endpoint {id} without address vector"),
            );
        }
        let (offer, address) = (ep.offer, ep.address.clone());
        let entries = 128 * universe();
        if ep.shape.provider.ends_with(";ofi_rxm") && entries > ep.shape.cq_limit {
            return code(FI_EINVAL);
        }
        if state
            .resident(offer, &address)
            .is_some_and(|other| other != id)
        {
            return code(FI_EADDRINUSE);
        }
        state.graves.remove(&address);
        state.ep(id).enabled = true;
        0
    };
    // SAFETY: an object of a fake.
    unsafe { enter(object.cast(), FI_CLASS_EP, "fi_enable", enable) as c_int }
}

/// Returns the number of peers that `ofi_rxm` expects.
fn universe() -> usize {
    let set = std::env::var("FI_UNIVERSE_SIZE").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(1024)
}

pub(crate) unsafe extern "C" fn getname(
    object: *mut fid,
    addr: *mut c_void,
    addrlen: *mut usize,
) -> c_int {
    let getname = |state: &mut State, id: Id| {
        let ep = state.ep(id);
        if !ep.enabled {
            // A provider may name an endpoint later than this, by the manual.
            return code(FI_EADDRNOTAVAIL);
        }
        // SAFETY: room and its size, by the call's contract.
        let fits = unsafe { give_address(&ep.address, addr, addrlen) };
        if fits { 0 } else { code(FI_ETOOSMALL) }
    };
    // SAFETY: an object of a fake.
    unsafe { enter(object.cast(), FI_CLASS_EP, "fi_getname", getname) as c_int }
}

pub(crate) unsafe extern "C" fn getopt(
    object: *mut fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    let getopt = |state: &mut State, id: Id| {
        // `FI_OPT_EFA_EMULATED_READ`
        if (level, name) != (FI_OPT_ENDPOINT, -(0xefa << 16) + 1) {
            return code(FI_ENOPROTOOPT);
        }
        // SAFETY: a size, by the call's contract.
        if unsafe { len.read() } != 1 {
            return code(FI_EINVAL);
        }
        let emulates = u8::from(state.ep(id).shape.emulates_reads);
        // SAFETY: room for as much, by the call's contract.
        unsafe { value.cast::<u8>().write(emulates) };
        0
    };
    // SAFETY: an object of a fake.
    unsafe { enter(object.cast(), FI_CLASS_EP, "fi_getopt", getopt) as c_int }
}

pub(crate) unsafe extern "C" fn setopt(
    object: *mut fid,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: usize,
) -> c_int {
    let setopt = |state: &mut State, id: Id| {
        let ep = state.ep(id);
        if level != FI_OPT_ENDPOINT || optname != FI_OPT_MIN_MULTI_RECV {
            return code(FI_ENOPROTOOPT);
        }
        if optval.is_null() || optlen != size_of::<usize>() {
            return state.violated(FI_EINVAL, "FI_OPT_MIN_MULTI_RECV is a size_t".to_owned());
        }
        // SAFETY: `optlen` bytes, by the call's contract.
        ep.least_multi = unsafe { optval.cast::<usize>().read_unaligned() };
        0
    };
    // SAFETY: an object of a fake.
    unsafe { enter(object.cast(), FI_CLASS_EP, "fi_setopt", setopt) as c_int }
}
