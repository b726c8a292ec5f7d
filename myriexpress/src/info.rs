//! The queries of `mx_get_info`.
//!
//! ```text
//!   key, endpoint or none, board by number or NIC id
//!      |
//!      +-- of the library    counts, limits            handles, settings
//!      +-- of an endpoint    counters                  process, mx_sys::published
//!      +-- of a board        driver, node, speed       /sys/class/net/<interface>
//!      v
//!   bytes in C's layout, and the size that C must provide
//! ```
//!
//! Out of scope: C's pointers.

use crate::abi::MX_MAX_STR_LEN;
use crate::error::{Code, Error};
use crate::handles::{EndpointHandle, REQUESTS_MAX, SLOTS_MAX};
use crate::numbers::numbers;
use crate::{library, process};
use mx_proto::port::PACKET_LEAST;
use mx_proto::{NicId, Route};
use mx_sys::hardware;
use mx_sys::interfaces::Board;
use mx_sys::{ROUTE_RDM, Settings, nic, published};
use std::fs;
use std::path::Path;

numbers! {
    /// `mx_get_info_key_t`.
    Key {
        NicCount = 1,
        NicIds = 2,
        MaxNativeEndpoints = 3,
        NativeRequests = 4,
        CountersCount = 5,
        CountersLabels = 6,
        CountersValues = 7,
        ProductCode = 8,
        PartNumber = 9,
        SerialNumber = 10,
        PortCount = 11,
        PioSendMax = 12,
        CopySendMax = 13,
        NumaNode = 14,
        NetType = 15,
        LineSpeed = 16,
    }
}

/// Board that a query is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The endpoint's board, or the first without an endpoint.
    Usual,
    /// The board with this number.
    Number(u32),
    /// The board with this id.
    Nic(NicId),
}

/// Value of an info key, as bytes for C.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    bytes: Vec<u8>,
    /// Bytes that C must provide; further ones are written as far as they fit.
    needed: usize,
}

impl Answer {
    /// Returns the bytes to write to a C buffer of `room` bytes; fails if the value does not fit. Only the 0 that ends
    /// a list of NIC ids may be left out.
    pub fn fitting(&self, room: usize) -> Result<&[u8], Error> {
        if room < self.needed {
            let text = format!("out_len is {room}, the answer has {} bytes", self.needed);
            return Err(Error::new(Code::BadInfoLength, text));
        }
        Ok(&self.bytes[..room.min(self.bytes.len())])
    }

    fn new(bytes: Vec<u8>) -> Self {
        let needed = bytes.len();
        Self { bytes, needed }
    }

    fn number(number: impl TryInto<u32>) -> Self {
        let number: u32 = number.try_into().unwrap_or(u32::MAX);
        Self::new(number.to_ne_bytes().to_vec())
    }

    fn text(text: &str) -> Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.truncate(MX_MAX_STR_LEN - 1);
        bytes.push(0);
        Self::new(bytes)
    }
}

/// Value of [`Key::NumaNode`] without a node.
const NO_NODE: u32 = u32::MAX;

/// `enum mx_net_type`: all boards are interfaces of the operating system.
const MX_NET_ETHER: u32 = 1;

/// `mx_line_speed_t`.
const MX_SPEED_2G: u32 = 0;
const MX_SPEED_10G: u32 = 1;
const MX_SPEED_OPEN_MX: u32 = 2;

/// Returns the info key with that number; fails if there is none.
pub fn key(number: u32) -> Result<Key, Error> {
    Key::of(number)
        .ok_or_else(|| Error::new(Code::BadInfoKey, format!("there is no info key {number}")))
}

/// Answers the query `key`: about `endpoint`, the library, or for a property of a board about `which`. Fails if the
/// endpoint is not open, and before `mx_init`.
pub fn answer(key: Key, endpoint: Option<EndpointHandle>, which: Which) -> Result<Answer, Error> {
    // An invalid endpoint makes every query fail.
    let board = endpoint.map(process::board_of).transpose()?;
    let settings = library::settings()?;
    Ok(match key {
        Key::NicCount => Answer::number(nic::boards().len()),
        Key::NicIds => {
            let ids = nic::boards().into_iter().map(|(nic, _)| nic.0);
            let bytes: Vec<u8> = ids.chain([0]).flat_map(u64::to_ne_bytes).collect();
            let needed = bytes.len() - size_of::<u64>();
            Answer { bytes, needed }
        }
        Key::MaxNativeEndpoints => Answer::number(SLOTS_MAX),
        Key::NativeRequests => Answer::number(REQUESTS_MAX),
        Key::CountersCount => Answer::number(published::COUNT),
        Key::CountersLabels => {
            let mut bytes = Vec::with_capacity(published::COUNT * MX_MAX_STR_LEN);
            for counter in published::counters() {
                let mut text = counter.label.as_bytes().to_vec();
                text.truncate(MX_MAX_STR_LEN - 1);
                text.resize(MX_MAX_STR_LEN, 0);
                bytes.extend(text);
            }
            Answer::new(bytes)
        }
        Key::CountersValues => {
            // The values wrap at 32 bits, as MX's counters do.
            let values = counters(endpoint, which)?;
            let bytes = values
                .iter()
                .flat_map(|value| (*value as u32).to_ne_bytes());
            Answer::new(bytes.collect())
        }
        Key::PioSendMax | Key::CopySendMax => Answer::number(copy_send_max(endpoint, &settings)?),
        Key::ProductCode
        | Key::PartNumber
        | Key::SerialNumber
        | Key::PortCount
        | Key::NumaNode
        | Key::NetType
        | Key::LineSpeed => {
            let (_, nic, board) = find(board, which)?;
            of_board(key, nic, &board)
        }
    })
}

/// Returns the largest message in bytes that an endpoint, or each open endpoint, sends eagerly. Without an open one,
/// the limit of every provider if libfabric may be used, because the actual provider is not known yet.
fn copy_send_max(endpoint: Option<EndpointHandle>, settings: &Settings) -> Result<usize, Error> {
    if let Some(endpoint) = endpoint {
        return process::copy_send_max(endpoint);
    }
    // An endpoint closed meanwhile is skipped.
    let open = process::open_endpoints().into_iter();
    let least = open.filter_map(|endpoint| process::copy_send_max(endpoint).ok());
    Ok(least.min().unwrap_or_else(|| {
        let fabric = match settings.port {
            ROUTE_RDM => true,
            Route::AUTO => !hardware::adapters().is_empty(),
            _ => false,
        };
        let most = if fabric { PACKET_LEAST } else { usize::MAX };
        settings.endpoint.eager_max.min(most)
    }))
}

/// Returns the counters of an endpoint, or their sums over this process's endpoints on a board.
fn counters(endpoint: Option<EndpointHandle>, which: Which) -> Result<Vec<u64>, Error> {
    if let Some(endpoint) = endpoint {
        return process::counters(endpoint);
    }
    let (number, ..) = find(None, which)?;
    let mut sums = vec![0_u64; published::COUNT];
    for endpoint in process::open_endpoints() {
        // An endpoint closed meanwhile is skipped.
        if process::board_of(endpoint).ok() != Some(number) {
            continue;
        }
        let values = process::counters(endpoint).unwrap_or_default();
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = sum.wrapping_add(value);
        }
    }
    Ok(sums)
}

/// Returns the board of a query: its number, its NIC id and itself.
fn find(of_endpoint: Option<u32>, which: Which) -> Result<(u32, NicId, Board), Error> {
    let boards = (0..).zip(nic::boards());
    let mut boards = boards.map(|(number, (nic, board))| (number, nic, board));
    let usual = of_endpoint.unwrap_or(0);
    let found = boards.find(|(number, nic, _)| match which {
        Which::Usual => *number == usual,
        Which::Number(wanted) => *number == wanted,
        Which::Nic(wanted) => *nic == wanted,
    });
    found.ok_or_else(|| {
        let text = match which {
            Which::Usual => format!("this host has no board {usual} any more"),
            Which::Number(wanted) => format!("this host has no board {wanted}"),
            Which::Nic(wanted) => format!("NIC {:#018x} is none of this host's", wanted.0),
        };
        Error::new(Code::BadInfoVal, text)
    })
}

fn of_board(key: Key, nic: NicId, board: &Board) -> Answer {
    let device = Path::new("/sys/class/net").join(&board.name);
    match key {
        Key::ProductCode => {
            let driver = fs::read_link(device.join("device/driver")).ok();
            let driver = driver.as_deref().and_then(Path::file_name);
            let driver = driver.map(|name| name.to_string_lossy().into_owned());
            Answer::text(driver.as_deref().unwrap_or("virtual"))
        }
        Key::PartNumber => Answer::text(&board.name),
        Key::SerialNumber => Answer::number(nic.0 as u32),
        Key::PortCount => Answer::number(1_u32),
        Key::NumaNode => {
            let node = number_in(&device.join("device/numa_node"));
            Answer::number(node.and_then(|n| u32::try_from(n).ok()).unwrap_or(NO_NODE))
        }
        Key::LineSpeed => Answer::number(speed(number_in(&device.join("speed")))),
        _ => Answer::number(MX_NET_ETHER),
    }
}

/// Reads a number from a file of the kernel's; -1 where the kernel knows none.
fn number_in(path: &Path) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns MX's constant for a speed in Mbit/s.
fn speed(megabits: Option<i64>) -> u32 {
    match megabits {
        Some(2000) => MX_SPEED_2G,
        Some(10_000..) => MX_SPEED_10G,
        _ => MX_SPEED_OPEN_MX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_at_its_number_and_other_numbers_are_rejected() {
        for number in 1..=16 {
            assert_eq!(key(number).unwrap() as u32, number);
        }
        for number in [0, 17, u32::MAX] {
            assert_eq!(key(number).unwrap_err().code(), Code::BadInfoKey);
        }
    }

    #[test]
    fn short_buffers_are_rejected_and_optional_parts_fit() {
        let ids = Answer {
            bytes: vec![1; 24],
            needed: 16,
        };
        assert_eq!(ids.fitting(15).unwrap_err().code(), Code::BadInfoLength);
        assert_eq!(ids.fitting(16).unwrap().len(), 16);
        assert_eq!(ids.fitting(24).unwrap().len(), 24);
        assert_eq!(ids.fitting(1000).unwrap().len(), 24);
        assert_eq!(Answer::text("eth0").fitting(5).unwrap(), b"eth0\0");
        assert!(Answer::text("eth0").fitting(4).is_err());
        let long = Answer::text(&"x".repeat(500));
        assert_eq!(long.fitting(MX_MAX_STR_LEN).unwrap().len(), MX_MAX_STR_LEN);
    }

    #[test]
    fn a_board_is_found_by_number_and_by_id() {
        let (number, nic, board) = find(None, Which::Usual).unwrap();
        assert_eq!(number, 0);
        let same = (number, nic, board);
        assert_eq!(find(Some(7), Which::Number(0)).unwrap(), same);
        assert_eq!(find(Some(7), Which::Nic(same.1)).unwrap(), same);
        for (own, which) in [
            (None, Which::Number(9999)),
            (None, Which::Nic(NicId(0))),
            (Some(9999), Which::Usual),
        ] {
            let error = find(own, which).unwrap_err();
            assert_eq!(error.code(), Code::BadInfoVal);
        }
    }

    #[test]
    fn what_the_kernel_says_of_speed_becomes_one_of_three() {
        assert_eq!(speed(Some(2000)), MX_SPEED_2G);
        assert_eq!(speed(Some(9999)), MX_SPEED_OPEN_MX);
        assert_eq!(speed(Some(10_000)), MX_SPEED_10G);
        assert_eq!(speed(Some(400_000)), MX_SPEED_10G);
        assert_eq!(speed(Some(-1)), MX_SPEED_OPEN_MX);
        assert_eq!(speed(None), MX_SPEED_OPEN_MX);
    }
}
