//! Histories of a send window: segments sent, acknowledged, lost and retransmitted.

use super::*;
use Channel::{Command, Data};

const START: Seq = Seq(u32::MAX - 9);
/// Size in bytes of every segment of [`Rig::push`].
const SIZE: u32 = 100;

/// A window and the buffer with its bytes.
struct Rig {
    window: SendWindow,
    detection: LossDetection,
    send_buffer: SendBuffer,
}

impl Rig {
    fn new(capacity: u16, window: u32) -> Self {
        let window = SendWindow::new(START, capacity, window);
        let send_buffer = SendBuffer::new(4 << 20);
        let detection = LossDetection::default();
        Self {
            window,
            detection,
            send_buffer,
        }
    }

    /// Adds a fragment of `len` bytes, in segments of at most 36 bytes: 100 with their header.
    fn push_fragment(&mut self, len: u32, tiny: bool) {
        let window = &mut self.window;
        let mut writer = self
            .send_buffer
            .writer(len as usize, 36)
            .expect("there is room");
        writer.fill_up(&mut self.send_buffer, &mut |_, segment| {
            window.push(Content {
                place: segment.place,
                fragment: 7,
                offset: segment.offset,
                fragment_len: len,
                payload: segment.payload,
                flags: 0,
                crc: 0,
                tiny,
            });
        });
    }

    fn push(&mut self, count: usize, tiny: bool) {
        (0..count).for_each(|_| self.push_fragment(36, tiny));
    }

    /// Sends all that may be sent. Returns the numbers of the segments.
    fn send(&mut self, at: u64) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(index) = self.window.next() {
            let out = self.window.slot(index).expect("it was just named");
            numbers.push(out.seq.since(START));
            self.window.on_sent(index, out.channel, Instant(at));
        }
        numbers
    }

    /// Makes a window with `count` segments sent at times 0, 1, 2, ...
    fn sent(count: usize) -> Self {
        let mut rig = Self::new(2048, u32::MAX);
        for i in 0..count {
            rig.push(1, false);
            assert_eq!(rig.send(i as u64), [i as u32]);
        }
        rig
    }

    fn ack(&mut self, ack: u32, sack: &[u64], at: u64) -> Result<Acked, BadAck> {
        let (ack, now) = (START.ahead(ack), Instant(at));
        let detection = self.detection;
        let acked = self
            .window
            .on_ack(ack, sack, now, detection, &mut self.send_buffer);
        self.check();
        acked
    }

    fn check(&self) {
        let window = &self.window;
        let sum = |wanted: fn(SegmentState) -> bool| {
            let slots = window.slots.iter().filter(|slot| wanted(slot.state));
            slots.fold((0, 0), |(count, bytes), slot| {
                (count + 1, bytes + slot.bytes())
            })
        };
        let in_flight = sum(|state| matches!(state, SegmentState::InFlight(_)));
        let lost = sum(|state| matches!(state, SegmentState::ToResend(_)));
        let queued = sum(|state| state != SegmentState::Free);
        let counts = &window.counts;
        assert_eq!((counts.in_flight, counts.in_flight_bytes), in_flight);
        assert_eq!((counts.lost, counts.queued_bytes), (lost.0, queued.1));
        let mut slots = window.slots.iter();
        let first = slots.position(SegmentSlot::is_lost);
        assert!(lost.0 == 0 || first == Some(window.resend));
        let mut arrived = window.slots.iter();
        let highest = arrived.rposition(|slot| slot.state == SegmentState::Free);
        assert!(highest.is_none_or(|highest| highest < window.highest));
    }
}

#[test]
fn cumulative_acknowledgements_work_across_the_wrap() {
    let mut rig = Rig::sent(20);
    assert_eq!(rig.window.in_flight_bytes(), 2000);
    let acked = rig.ack(15, &[], 50).expect("in range");
    assert_eq!((acked.segments, acked.bytes), (15, 1500));
    assert_eq!(acked.rtt, Some(Duration::from_nanos(50 - 14)));
    assert!(acked.moved);
    assert_eq!((rig.window.counts.in_flight, rig.window.free()), (5, 2043));
    rig.ack(20, &[], 60).expect("in range");
    assert!(rig.window.is_empty());
    assert_eq!(rig.window.queued_bytes(), 0);
    rig.push(1, false);
    assert_eq!(rig.send(70), [20]);
}

#[test]
fn ack_of_unsent_segments_is_rejected_without_effect() {
    let mut rig = Rig::sent(10);
    rig.window.allowed_total = 0;
    rig.push(1, false);
    for (ack, sack) in [
        (11, 0),
        (10, 1),
        (0, 1 << 9),
        (9, 1),
        (1 << 30, 0),
        (0, 1 << 63),
    ] {
        assert_eq!(rig.ack(ack, &[sack], 50), Err(BadAck), "{ack} {sack:x}");
    }
    assert_eq!(rig.ack(0, &[0, 1], 50), Err(BadAck));
    assert_eq!(rig.ack(0, &[0; 17], 50), Ok(Acked::default()));
    assert_eq!(
        (rig.window.counts.in_flight, rig.window.queued_bytes()),
        (10, 1100)
    );
    assert!(rig.ack(0, &[1 << 8], 50).is_ok());
}

#[test]
fn later_sack_words_count_and_bytes_return_at_once() {
    let mut rig = Rig::sent(1100);
    let mut sack = [u64::MAX; 17];
    sack[16] = u64::MAX >> 1 & !1;
    let acked = rig.ack(0, &sack, 2000).expect("in range");
    assert_eq!((acked.segments, acked.moved), (64 * 17 - 2, false));
    assert_eq!((acked.lost_segments, rig.send(2001)), (2, vec![0, 1025]));
    assert_eq!(rig.window.queued_bytes(), 14 * 100);
    let acked = rig.ack(1025, &[], 3000).expect("in range");
    assert_eq!((acked.segments, acked.bytes, acked.rtt), (1, 100, None));
}

/// Returns a criterion: no acknowledgement comes sooner than 30 after sending; reordered segments take up to `wait`.
fn detecting(wait: u64) -> LossDetection {
    LossDetection {
        least: Duration::from_nanos(30),
        wait: Duration::from_nanos(wait),
    }
}

#[test]
fn ack_too_soon_after_resend_is_for_the_original() {
    for (at, spurious) in [(89, 1), (90, 0)] {
        let mut rig = Rig::sent(4);
        rig.detection = detecting(0);
        rig.ack(0, &[0b111], 50).expect("in range");
        assert_eq!(rig.send(60), [0]);
        let acked = rig.ack(4, &[], at).expect("in range");
        assert_eq!(acked.spurious_segments, spurious, "at {at}");
        assert_eq!(acked.spurious_bytes, u64::from(SIZE * spurious));
        let was = (spurious > 0).then_some((Instant(0), Duration::from_nanos(at)));
        assert_eq!(acked.spurious_sent_at.zip(acked.reordered), was);
        // A segment sent twice gives no sample, whichever arrived.
        assert_eq!(acked.rtt, None);
    }
}

#[test]
fn segments_lost_by_a_ping_are_not_reordered_when_they_arrive() {
    let mut rig = Rig::sent(4);
    rig.detection = detecting(0);
    assert_eq!(rig.window.lose_sent_before(Instant(100)).lost_segments, 4);
    assert_eq!(rig.send(100), [0, 1, 2, 3]);
    let acked = rig.ack(4, &[], 110).expect("in range");
    assert_eq!((acked.spurious_segments, acked.reordered), (4, None));
}

#[test]
fn what_went_right_before_a_ping_and_is_not_named_is_lost() {
    let mut rig = Rig::sent(4);
    let behind = (Data, rig.window.transmissions(Data));
    rig.push(1, false);
    assert_eq!(rig.send(0), [4]);
    rig.ack(0, &[0b10], 10).expect("in range");
    // Later segments are not lost, and with reordering only those that had been lost before.
    assert_eq!(rig.window.lose_sent_up_to(behind, true).lost_segments, 0);
    assert_eq!(
        rig.window
            .lose_sent_up_to((Command, 9), false)
            .lost_segments,
        0
    );
    assert_eq!(rig.window.lose_sent_up_to(behind, false).lost_segments, 3);
    assert_eq!(rig.send(20), [0, 1, 3]);
    let behind = (Data, rig.window.transmissions(Data));
    assert_eq!(rig.window.lose_sent_up_to(behind, true).lost_segments, 3);
    rig.check();
}

#[test]
fn a_reordered_segment_is_not_lost_until_its_time_is_over() {
    let mut rig = Rig::sent(6);
    rig.detection = detecting(100);
    let acked = rig.ack(0, &[0b11110], 99).expect("in range");
    // Segment 1 was sent at 1, and is reordered as well.
    assert_eq!(acked.lost_segments, 0);
    assert_eq!(acked.lost_next, Some(Instant(100)));
    let wait = rig.detection.wait;
    let lost = rig.window.declare_reordered_lost(Instant(99), wait);
    assert_eq!(
        (lost.lost_segments, lost.lost_next),
        (0, Some(Instant(100)))
    );
    let lost = rig.window.declare_reordered_lost(Instant(100), wait);
    assert_eq!(
        (lost.lost_segments, lost.lost_next),
        (1, Some(Instant(101)))
    );
    rig.check();
    // The other segment arrives, reordered.
    let acked = rig.ack(0, &[0b11111], 100).expect("in range");
    assert_eq!((acked.spurious_segments, acked.lost_segments), (0, 0));
    assert_eq!(acked.reordered, Some(Duration::from_nanos(99)));
    assert_eq!(rig.send(101), [0]);
}

#[test]
fn a_time_out_that_was_none_is_taken_back() {
    let mut rig = Rig::sent(10);
    rig.detection = detecting(0);
    assert!(rig.window.on_timeout());
    for number in [0, 1] {
        rig.window.on_sent(number, Data, Instant(100));
    }
    let acked = rig.ack(1, &[], 110).expect("in range");
    assert_eq!(acked.spurious_sent_at, Some(Instant(0)));
    rig.window.on_timeout_undone();
    rig.check();
    assert_eq!(
        (rig.window.next(), rig.window.in_flight_bytes()),
        (None, 900)
    );
    let acked = rig.ack(10, &[], 120).expect("in range");
    // These are samples, because the segments were sent once.
    assert_eq!(acked.rtt, Some(Duration::from_nanos(120 - 9)));
    assert!(rig.window.is_empty());
}

#[test]
fn a_loss_that_was_none_is_not_sent_again() {
    let mut rig = Rig::sent(10);
    rig.ack(0, &[0b1_1110], 50).expect("in range");
    assert_eq!(rig.window.next(), Some(0));
    rig.ack(1, &[0b1111], 51).expect("in range");
    assert_eq!(rig.window.next(), Some(0));
    assert_eq!(rig.send(52), [1]);
    assert!(rig.window.on_timeout());
    rig.ack(9, &[], 53).expect("in range");
    assert_eq!(rig.send(54), [9]);
}

#[test]
fn nothing_is_sent_beyond_the_window_of_the_receiver() {
    let mut rig = Rig::new(64, 2 * SIZE + 99);
    rig.push(5, false);
    assert_eq!(rig.window.batch(0, 64, 1 << 20), 2);
    assert_eq!(rig.send(0), [0, 1]);
    assert!(!rig.window.is_stuck());
    rig.ack(2, &[], 9).expect("in range");
    // 99 bytes admit one segment after all: nothing else would make the receiver speak.
    assert_eq!(rig.send(10), [2]);
    rig.ack(3, &[], 11).expect("in range");
    assert!(rig.window.is_stuck());
    rig.window.on_window(START.ahead(3), SIZE);
    assert_eq!(rig.send(12), [3]);
    // An older, smaller window does not take it back.
    rig.window.on_window(START.ahead(3), 2 * SIZE);
    rig.window.on_window(START.ahead(3), 0);
    assert_eq!(rig.send(13), [4]);
    rig.check();
}

#[test]
fn a_timeout_resends_all_that_is_not_known_to_be_there() {
    let mut rig = Rig::sent(4);
    rig.ack(1, &[1], 50).expect("in range");
    assert!(rig.window.on_timeout());
    assert_eq!(rig.window.in_flight_bytes(), 0);
    assert_eq!(rig.send(60), [1, 3]);
    assert!(!Rig::new(4, 4).window.on_timeout());
}

#[test]
fn batch_is_adjacent_uniform_and_within_limits() {
    let mut rig = Rig::new(64, u32::MAX);
    // 10 segments of full size and one of 10 bytes, in one block; then another fragment.
    rig.push_fragment(370, false);
    rig.push_fragment(360, false);
    let window = &mut rig.window;
    assert_eq!(window.batch(0, 64, 1 << 20), 11);
    assert_eq!(window.batch(0, 4, 1 << 20), 4);
    assert_eq!(window.batch(0, 64, 399), 3);
    assert_eq!(window.batch(0, 64, 1), 1);
    assert_eq!(window.batch(0, 0, 0), 1);
    assert_eq!(window.batch(10, 64, 1 << 20), 1);
    assert_eq!(window.batch(11, 64, 1 << 20), 10);
    assert_eq!(window.batch(21, 64, 1 << 20), 0);
    window.allowed_total = 350;
    assert_eq!(window.batch(0, 64, 1 << 20), 3);
    window.allowed_total = 1 << 20;
    (0..8).for_each(|index| window.on_sent(index, Data, Instant(index as u64)));
    rig.ack(0, &[0b111_1000], 20).expect("in range");
    // Segments 0 to 3 are lost, 4 to 7 have arrived, 8 to 10 are new.
    assert_eq!(rig.window.next(), Some(0));
    assert_eq!(rig.window.batch(0, 64, 1 << 20), 4);
    assert_eq!(rig.window.batch(8, 64, 1 << 20), 3);
    rig.window.on_sent(0, Data, Instant(30));
    assert_eq!(rig.window.next(), Some(1));
    assert_eq!(rig.window.batch(1, 64, 1 << 20), 3);
}

#[test]
fn random_histories_keep_all_sums_right_and_deliver_everything() {
    let mut random = 7u64;
    let mut draw = move |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let mut rig = Rig::new(200, 20_000);
    rig.detection = detecting(5);
    let (mut here, mut edge, mut pushed) = (vec![false; 5000], 0usize, 0usize);
    let mut lost = 0;
    for now in 0.. {
        while pushed < here.len() && rig.window.free() > 0 && draw(8) != 0 {
            rig.push(1, draw(3) == 0);
            pushed += 1;
        }
        for number in rig.send(now) {
            here[number as usize] |= draw(5) != 0;
        }
        edge += here[edge..].iter().take_while(|&&here| here).count();
        let mut sack = [0u64; 17];
        for (i, _) in here
            .iter()
            .skip(edge + 1)
            .take(1088)
            .enumerate()
            .filter(|(_, here)| **here)
        {
            sack[i / 64] |= 1 << (i % 64);
        }
        if draw(3) != 0 {
            let acked = rig
                .ack(edge as u32, &sack, now)
                .expect("all of it was sent");
            lost += acked.lost_segments;
            rig.window.on_window(START.ahead(edge as u32), 20_000);
        }
        let (at, wait) = (Instant(now), rig.detection.wait);
        let found = match draw(50) {
            0 => rig.window.declare_reordered_lost(at, wait),
            1 => rig.window.lose_sent_before(at),
            _ => Acked::default(),
        };
        lost += found.lost_segments;
        if draw(100) == 0 {
            rig.window.on_timeout_undone();
        }
        rig.check();
        if draw(50) == 0 || (rig.window.next().is_none() && draw(5) == 0) {
            rig.window.on_timeout();
            rig.check();
        }
        if rig.window.is_empty() && pushed == here.len() {
            break;
        }
    }
    assert!(lost > 100, "{lost} losses");
    rig.send_buffer.trim();
    assert_eq!(rig.send_buffer.bytes(), 0);
}

#[test]
fn idle_window_and_closed_link_hold_no_memory() {
    let mut rig = Rig::new(1024, u32::MAX);
    assert_eq!(rig.window.slots.capacity(), 0);
    rig.push(100, false);
    rig.send(0);
    rig.ack(10, &[0b10], 1).expect("in range");
    rig.window.shrink();
    assert!(rig.window.slots.capacity() >= 90);
    rig.window.release_all(&mut rig.send_buffer);
    assert!(rig.window.is_empty() && rig.window.next().is_none());
    rig.check();
    rig.send_buffer.trim();
    assert_eq!(
        (rig.send_buffer.bytes(), rig.window.slots.capacity()),
        (0, 0)
    );
    let mut rig = Rig::sent(30);
    rig.ack(30, &[], 40).expect("in range");
    rig.window.shrink();
    assert_eq!(rig.window.slots.capacity(), 0);
    assert!(
        size_of::<SendWindow>() <= 192,
        "{}",
        size_of::<SendWindow>()
    );
    assert!(
        size_of::<SegmentSlot>() <= 88,
        "{}",
        size_of::<SegmentSlot>()
    );
}
