//! Answers of `mx_get_info` to good queries.
//!
//! ```text
//!   key x (endpoint | none) x (board by number, by id, not at all)   -->   the same answer
//! ```

use crate::own_process::in_own_process;
use libc::c_void;
use mx_sys::{nic, published};
use myriexpress_api::abi::{
    MX_ANY_ENDPOINT, MX_ANY_NIC, MX_API, MX_MAX_STR_LEN, mx_endpoint_t, mx_get_info_key_t,
};
use myriexpress_api::exports::endpoint::{mx_close_endpoint, mx_open_endpoint};
use myriexpress_api::exports::lifecycle::{mx__init_api, mx_finalize};
use myriexpress_api::exports::names::mx_get_info;
use myriexpress_api::info::Key;
use std::ptr::null_mut;

/// More bytes than any answer.
const ROOM: usize = 64 * 1024;

/// Byte that stays where nothing was written.
const PATTERN: u8 = 0xa5;

/// Returns the answer to a query with `room` bytes.
fn ask(ep: mx_endpoint_t, key: Key, board: Option<&mut [u8]>, room: usize) -> Vec<u8> {
    let mut out = vec![PATTERN; ROOM];
    let (value, len) = match board {
        Some(board) => (board.as_mut_ptr().cast::<c_void>(), board.len() as u32),
        None => (null_mut(), 0),
    };
    let key = key as mx_get_info_key_t;
    // SAFETY: all buffers are as long as given.
    let code = unsafe { mx_get_info(ep, key, value, len, out.as_mut_ptr().cast(), room as u32) };
    assert_eq!(code, 0, "{key:?}");
    assert!(out[room..].iter().all(|byte| *byte == PATTERN), "{key:?}");
    out
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes[..4].try_into().unwrap())
}

fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap();
    std::str::from_utf8(&bytes[..end]).unwrap()
}

/// In a separate process: the last finalize closes every endpoint.
#[test]
fn every_key_answers_the_same_for_every_way_to_name_the_board() {
    in_own_process!();
    let mut ep: mx_endpoint_t = null_mut();
    // SAFETY: a place to write to.
    unsafe {
        assert_eq!(mx__init_api(MX_API), 0);
        let code = mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, 1, null_mut(), 0, &raw mut ep);
        assert_eq!(code, 0);
    }
    let boards = nic::boards();
    let ids: Vec<u64> = boards.iter().map(|(nic, _)| nic.0).collect();
    let mut number_8 = [0_u8];
    let mut number_32 = 0_u32.to_ne_bytes();
    let mut id = ids[0].to_ne_bytes();
    for &key in Key::ALL {
        let one = ask(null_mut(), key, None, ROOM);
        if key != Key::CountersValues {
            assert_eq!(one, ask(ep, key, None, ROOM), "{key:?}");
        }
        for board in [&mut number_8[..], &mut number_32, &mut id] {
            let same = ask(null_mut(), key, Some(board), ROOM);
            assert!(key == Key::CountersValues || one == same, "{key:?}");
        }
    }
    let (_, board) = &boards[0];
    assert_eq!(number(&ask(ep, Key::NicCount, None, 4)), ids.len() as u32);
    assert_eq!(
        text(&ask(ep, Key::PartNumber, None, MX_MAX_STR_LEN)),
        board.name
    );
    assert_eq!(number(&ask(ep, Key::SerialNumber, None, 4)), ids[0] as u32);
    assert_eq!(number(&ask(ep, Key::CopySendMax, None, 4)), 32_768);
    assert_eq!(number(&ask(ep, Key::PortCount, None, 4)), 1);
    the_ids_end_with_a_zero_where_there_is_room(&ids);
    counters_have_a_label_each(ep);
    // SAFETY: no pointers but the handle.
    unsafe {
        assert_eq!(mx_close_endpoint(ep), 0);
        assert_eq!(mx_finalize(), 0);
    }
}

fn the_ids_end_with_a_zero_where_there_is_room(ids: &[u64]) {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
    let exact = ask(null_mut(), Key::NicIds, None, bytes.len());
    assert_eq!(exact[..bytes.len()], bytes);
    let more = ask(null_mut(), Key::NicIds, None, bytes.len() + 8);
    assert_eq!(more[..bytes.len()], bytes);
    assert_eq!(more[bytes.len()..bytes.len() + 8], [0; 8]);
}

fn counters_have_a_label_each(ep: mx_endpoint_t) {
    let count = number(&ask(ep, Key::CountersCount, None, 4)) as usize;
    assert_eq!(count, published::COUNT);
    let labels = ask(ep, Key::CountersLabels, None, count * MX_MAX_STR_LEN);
    for (at, counter) in published::counters().iter().enumerate() {
        assert_eq!(text(&labels[at * MX_MAX_STR_LEN..]), counter.label);
    }
    // Counters of one endpoint, and of all on its board, which is the same endpoint.
    ask(ep, Key::CountersValues, None, count * 4);
    ask(null_mut(), Key::CountersValues, None, count * 4);
}
