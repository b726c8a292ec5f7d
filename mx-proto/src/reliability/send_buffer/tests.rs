//! Tests of fragments that are written, read back and released.

use super::*;

/// Writes `bytes` in pieces of `piece` bytes, as a fragment of `len` bytes.
fn write(
    send_buffer: &mut SendBuffer,
    bytes: &[u8],
    len: usize,
    payload: usize,
    piece: usize,
) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut done = |_: &mut SendBuffer, segment| segments.push(segment);
    let mut writer = send_buffer.writer(len, payload).expect("there is room");
    for piece in bytes.chunks(piece) {
        writer.push(send_buffer, piece, &mut done);
    }
    writer.fill_up(send_buffer, &mut done);
    writer.push(send_buffer, b"more", &mut done);
    writer.fill_up(send_buffer, &mut done);
    segments
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Puts a fragment together from its segments.
fn read(send_buffer: &mut SendBuffer, segments: &[Segment]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in segments {
        assert_eq!(segment.offset as usize, bytes.len());
        let all = send_buffer.bytes_of(segment.place);
        assert_eq!(all.len(), HEADER_SPACE + segment.payload as usize);
        bytes.extend_from_slice(&all[HEADER_SPACE..]);
    }
    bytes
}

#[test]
fn fragments_of_all_lengths_cut_in_all_ways_come_back_whole() {
    let mut send_buffer = SendBuffer::new(16 << 20);
    let payloads = [484, 1408, 8908, 32_704, 65_443, (64 << 10) - HEADER_SPACE];
    let lens = [
        1, 32, 960, 961, 1408, 1409, 10_176, 10_177, 65_472, 65_473, 262_176,
    ];
    for payload in payloads {
        for len in lens {
            for piece in [32, 1000, 1 << 20] {
                let bytes = pattern(len);
                let segments = write(&mut send_buffer, &bytes, len, payload, piece);
                assert_eq!(segments.len(), len.div_ceil(payload), "{len} by {payload}");
                assert_eq!(
                    read(&mut send_buffer, &segments),
                    bytes,
                    "{len} by {payload}"
                );
                segments
                    .iter()
                    .for_each(|segment| send_buffer.release(segment.place));
            }
        }
    }
    send_buffer.trim();
    assert_eq!(send_buffer.bytes(), 0);
}

#[test]
fn memory_shorter_than_promised_is_filled_up_with_zeros() {
    let mut send_buffer = SendBuffer::new(1 << 20);
    drop(
        write(&mut send_buffer, &[9; 3000], 3000, 1000, 3000)
            .into_iter()
            .map(|segment| send_buffer.release(segment.place))
            .collect::<Vec<_>>(),
    );
    let segments = write(&mut send_buffer, &[1; 1500], 3000, 1000, 700);
    let mut expected = vec![1; 1500];
    expected.resize(3000, 0);
    assert_eq!(read(&mut send_buffer, &segments), expected);
}

#[test]
fn while_memory_is_short_only_blocks_that_are_there_are_used() {
    let dire = Supply {
        level: || crate::supply::MemoryLevel::Critical,
        ..Supply::ENDLESS
    };
    let mut send_buffer = SendBuffer::new(64 << 10);
    let segments = write(&mut send_buffer, &pattern(100), 100, 1408, 100);
    segments
        .iter()
        .for_each(|segment| send_buffer.release(segment.place));
    let mut send_buffer = send_buffer.from(dire);
    assert!(send_buffer.writer(40_000, 1408).is_none());
    assert!(send_buffer.writer(100, 1408).is_some());
}

#[test]
fn what_does_not_fit_reserves_nothing() {
    let mut send_buffer = SendBuffer::new(128 << 10);
    assert!(send_buffer.writer(256 << 10, 1408).is_none());
    assert!(send_buffer.writer(100_000, 0).is_none());
    assert!(
        send_buffer
            .writer(100_000, (64 << 10) - HEADER_SPACE + 1)
            .is_none()
    );
    let held = send_buffer.writer(100_000, 1408);
    assert!(held.is_some());
    assert!(send_buffer.writer(1, 1408).is_none());
    assert_eq!(send_buffer.bytes(), 128 << 10);
}

#[test]
fn free_blocks_of_one_class_make_room_for_another() {
    let mut send_buffer = SendBuffer::new(64 << 10);
    let small: Vec<_> = (0..64)
        .flat_map(|_| write(&mut send_buffer, &[1], 1, 1408, 1))
        .collect();
    assert_eq!(send_buffer.bytes(), 64 << 10);
    assert!(send_buffer.writer(1, 1408).is_none());
    small
        .iter()
        .for_each(|segment| send_buffer.release(segment.place));
    assert_eq!(
        write(&mut send_buffer, &pattern(50_000), 50_000, 1408, 99).len(),
        36
    );
}

#[test]
fn spare_blocks_are_bounded_and_an_idle_store_holds_nothing() {
    let mut send_buffer = SendBuffer::new(64 << 20);
    assert_eq!(send_buffer.blocks.capacity(), 0);
    let segments: Vec<_> = (0..1000)
        .flat_map(|_| write(&mut send_buffer, &[1; 60_000], 60_000, 65_443, 60_000))
        .collect();
    assert_eq!(send_buffer.bytes(), 1000 * (64 << 10));
    segments
        .iter()
        .for_each(|segment| send_buffer.release(segment.place));
    assert_eq!(send_buffer.bytes(), 4 << 20);
    let last = write(&mut send_buffer, &[1], 1, 1408, 1);
    send_buffer.trim_if_idle();
    assert!(send_buffer.bytes() > 4 << 20);
    send_buffer.release(last[0].place);
    send_buffer.trim_if_idle();
    assert_eq!((send_buffer.bytes(), send_buffer.blocks.capacity()), (0, 0));
    assert!(send_buffer.spare.iter().all(|spare| spare.capacity() == 0));
}
