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
    let small: Vec<_> = (0..6)
        .flat_map(|_| write(&mut send_buffer, &[1; 1400], 1400, 1408, 1400))
        .collect();
    assert_eq!(send_buffer.bytes(), 60 << 10);
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

#[test]
fn small_fragments_in_a_row_adjoin_in_one_block_that_is_reused() {
    let mut send_buffer = SendBuffer::new(1 << 20);
    let block = CLASS_BYTES[0];
    let count = block / (HEADER_SPACE + 40);
    let mut row: Vec<_> = (0..count)
        .flat_map(|i| write(&mut send_buffer, &[i as u8; 40], 40, 1408, 40))
        .collect();
    let pairs = row.windows(2);
    assert!(pairs.into_iter().all(|p| p[0].place.adjoins(p[1].place)));
    for (i, segment) in row.iter().enumerate() {
        assert_eq!(read(&mut send_buffer, &[*segment]), [i as u8; 40]);
    }
    // The block is full.
    let next = write(&mut send_buffer, &[1; 40], 40, 1408, 40)[0].place;
    assert_ne!(next.block, row[0].place.block);
    assert_eq!(send_buffer.bytes(), 2 * block);
    // Released segments leave the rest of a block as it is.
    let last = row.pop().expect("some");
    row.iter()
        .for_each(|segment| send_buffer.release(segment.place));
    assert_eq!(read(&mut send_buffer, &[last]), [count as u8 - 1; 40]);
    send_buffer.release(last.place);
    // An open block without segments is used from its beginning.
    send_buffer.release(next);
    let again = write(&mut send_buffer, &[2; 40], 40, 1408, 40)[0].place;
    assert_eq!((again.block, again.at), (next.block, 0));
    send_buffer.release(again);
    send_buffer.trim_if_idle();
    assert_eq!(send_buffer.bytes(), 0);
}

#[test]
fn fragments_above_the_limit_of_shared_blocks_have_a_block_of_their_own() {
    let mut send_buffer = SendBuffer::new(1 << 20);
    let most = SHARED_MAX - HEADER_SPACE;
    let block = |len: usize, send_buffer: &mut SendBuffer| {
        write(send_buffer, &pattern(len), len, 1408, len)[0]
            .place
            .block
    };
    let shared = block(most, &mut send_buffer);
    let own = block(most + 1, &mut send_buffer);
    assert_ne!(shared, own);
    assert_eq!(block(most, &mut send_buffer), shared);
}
