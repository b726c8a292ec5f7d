//! Damage, forgeries and violations in a session's program.
//!
//! ```text
//!   true datagram --> shortened, damaged, joined, replayed
//!   pattern ---> forged: with a session's cookies: from its peer, as far as a port can tell
//!                        without: strikes, and must change nothing
//!   stranger --> Hello -> Welcome -> a session of its own, in which it sends anything
//! ```

use super::World;
use crate::forge::{FOREIGN, mend};
use crate::input::Input;
use crate::net::{Address, Datagram};
use crate::packets::put;
use mx_proto::port::BODY_LEN_AT;
use mx_proto::reliability::{Quote, ReliableStats};
use mx_sim::datagram::header::{
    ACKED, DATA, FLAGS, FRAGMENT, FROM, GREETING, HEADER, HELLO, OPENING, SACK, SEQ, SUMMED, TO,
    WELCOME, WHOLE, WINDOW, altered, build, is_kind, seal,
};
use std::collections::BTreeSet;

/// A stranger that calls by the rules, and then breaks them.
#[derive(Default)]
pub(super) struct Stranger {
    cookie: u64,
    first: u32,
    next: u32,
    fragment: u32,
}

impl World {
    pub(super) fn shorten(&mut self, input: &mut Input<'_>) {
        let at = input.below(64);
        let Some(mut datagram) = self.take_from_wire(at) else {
            return;
        };
        let len = match input.byte() {
            0 => HEADER,
            1 => datagram.bytes.len().saturating_sub(1),
            _ => input.below(datagram.bytes.len()),
        };
        // A probe or an acknowledgement without its payload would be another true datagram; its
        // header has the length, so it is not.
        let shorter = len < datagram.bytes.len();
        datagram.bytes.truncate(len);
        if shorter {
            self.strike(datagram, None);
        }
    }

    /// Flips up to three bits, which CRC-32C detects at any length.
    pub(super) fn damage(&mut self, input: &mut Input<'_>) {
        let at = input.below(64);
        let Some(mut datagram) = self.take_from_wire(at) else {
            return;
        };
        let summed = FLAGS.of(&datagram.bytes) & SUMMED != 0;
        // Where no bit can flip, no sum is needed.
        let end = if summed { datagram.bytes.len() } else { HEADER };
        let mut bits = BTreeSet::new();
        for _ in 0..=input.below(3) {
            bits.insert((input.below(end), input.byte() % 8));
        }
        for (at, bit) in bits {
            datagram.bytes[at] ^= 1 << bit;
        }
        self.strike(datagram, None);
    }

    /// Delivers some datagrams for one receiver together, cut where the service believes they end.
    pub(super) fn join(&mut self, input: &mut Input<'_>) {
        let at = input.below(64);
        let Some(mut batch) = self.take_from_wire(at) else {
            return;
        };
        let right = batch.bytes.len();
        for _ in 0..input.below(16) {
            let mut net = self.net.borrow_mut();
            let alike = net.wire.get(at).is_some_and(|next| {
                (next.from, next.to) == (batch.from, batch.to) && next.bytes.len() <= right
            });
            let Some(next) = net.wire.remove(at).filter(|_| alike) else {
                break;
            };
            batch.bytes.extend_from_slice(&next.bytes);
            if next.bytes.len() < right {
                break;
            }
        }
        let segment = match input.byte() {
            0..=127 => right,
            128 => 1,
            129 => usize::MAX,
            130 => HEADER,
            _ => 1 + input.below(batch.bytes.len()),
        };
        self.net.borrow_mut().arrive_cut(batch, segment);
    }

    /// Sends a forged datagram. A machine that has both cookies of a session and its address, or
    /// uses the data channel before it is proven, counts as the peer, as far as a port can tell.
    pub(super) fn forge(&mut self, input: &mut Input<'_>) {
        let end = input.below(2);
        let peer = 1 - end as u8;
        let pattern = self.pattern(end as u8, input.below(32));
        let how = input.byte();
        let mut bytes = match (&pattern, how & 3) {
            (Some(true_one), 0..=2) => true_one.bytes.clone(),
            _ => build(DATA, &[], &[]),
        };
        let (to, from) = pattern.map_or((1, 1), |pattern| {
            (TO.of(&pattern.bytes), FROM.of(&pattern.bytes))
        });
        mend(&mut bytes, input);
        let wrong = input.u64() | 1;
        let (to, from) = match how >> 2 & 7 {
            0..=2 => (to, from),
            3 => (to, wrong),
            4 => (wrong, from),
            5 => (from, to),
            6 => (0, from),
            _ => (wrong, wrong.rotate_left(7)),
        };
        let bytes = altered(&bytes, &[(TO, to), (FROM, from)]);
        let host = if how & 0x20 == 0 {
            peer
        } else {
            2 + input.byte() % 2
        };
        let channel = how >> 6 & 1;
        let datagram = Datagram {
            from: (host, channel),
            to: (end as u8, channel),
            bytes,
        };
        if self.knows(&datagram) {
            self.taint();
            self.net.borrow_mut().arrive(datagram);
        } else {
            self.strike(datagram, None);
        }
    }

    /// Returns whether the datagram contains what only the two ends of a session know.
    fn knows(&self, datagram: &Datagram) -> bool {
        let bytes = &datagram.bytes;
        let cookies = &self.net.borrow().seen.cookies;
        let both = cookies.contains(&TO.of(bytes))
            && (cookies.contains(&FROM.of(bytes)) || is_kind(bytes, WELCOME));
        both && (datagram.from.0 < 2 || datagram.from.1 == 1)
    }

    fn taint(&mut self) {
        for user in &mut self.users {
            user.tainted = true;
        }
        self.disturbed = true;
    }

    fn pattern(&self, to: u8, at: usize) -> Option<Datagram> {
        let net = self.net.borrow();
        net.log
            .iter()
            .rev()
            .filter(|known| known.to.0 == to)
            .nth(at)
            .cloned()
    }

    /// Sends a true datagram again, from its sender or as if from another host.
    pub(super) fn replay(&mut self, input: &mut Input<'_>) {
        let (at, how) = (input.below(32), input.byte());
        let known = self.net.borrow().log.iter().rev().nth(at).cloned();
        let Some(mut datagram) = known else {
            return;
        };
        if how & 1 == 1 {
            datagram.from.0 = 2 + input.byte() % 2;
            // Before the data channel is proven, its address is that of the first data.
            if datagram.from.1 == 1 {
                self.taint();
            } else {
                return self.strike(datagram, None);
            }
        }
        self.net.borrow_mut().arrive(datagram);
    }

    pub(super) fn raw(&mut self, input: &mut Input<'_>) {
        let (end, how) = (input.below(2), input.byte());
        let len = input.below(200);
        let datagram = Datagram {
            from: (2 + (how & 1), how >> 1 & 1),
            to: (end as u8, how >> 1 & 1),
            bytes: input.bytes(len).to_vec(),
        };
        let segment = 1 + input.below(100);
        self.strike(datagram, Some(segment));
    }

    /// Reports a network error for an address. A port may believe it only if it quotes a datagram
    /// that was sent.
    pub(super) fn rumour(&mut self, input: &mut Input<'_>) {
        let (end, host, channel) = (input.below(2), input.byte() % 4, input.byte() % 2);
        let how = input.byte();
        let quoted = match how / 6 % 4 {
            0 => None,
            1 => Some(build(DATA, &[(TO, 1), (FROM, how.into())], &[])),
            _ => self.pattern(1 - end as u8, 0).map(|known| known.bytes),
        };
        let quote = quoted.as_deref().and_then(Quote::read);
        let known =
            quoted.is_some_and(|bytes| self.net.borrow().seen.cookies.contains(&FROM.of(&bytes)));
        let most = match how % 6 {
            0 => None,
            n => Some([0, 100, 600, 1400, 65_000, usize::MAX][usize::from(n)]),
        };
        self.disturbed |= known && most.is_none_or(|most| most < 548);
        let net = self.net.borrow();
        net.report(end as u8, (host, channel), most, quote);
    }

    pub(super) fn call_as_stranger(&mut self, input: &mut Input<'_>) {
        let (end, who) = (input.below(2), input.below(2));
        let stranger = &mut self.strangers[who];
        stranger.cookie = input.u64() | 1;
        stranger.first = input.near(0);
        stranger.next = stranger.first;
        stranger.fragment = 0;
        let fields = [(FROM, stranger.cookie), (SEQ, stranger.first.into())];
        let bytes = build(HELLO, &fields, &[0; GREETING]);
        let from = (2 + who as u8, 0);
        let to = (end as u8, 0);
        self.strike(Datagram { from, to, bytes }, None);
    }

    /// Sends a packet of a stranger in its own session: valid, nearly valid, or any.
    pub(super) fn lie_as_stranger(&mut self, input: &mut Input<'_>) {
        let (end, who) = (input.below(2), input.below(2));
        let at_home = (2 + who as u8, 0);
        let welcome = self.net.borrow().seen.welcomes.get(&at_home).cloned();
        let Some(welcome) = welcome.filter(|welcome| TO.of(welcome) == self.strangers[who].cookie)
        else {
            return;
        };
        let stranger = &mut self.strangers[who];
        let how = input.byte();
        let payload = match how & 3 {
            0 => 32,
            1 => 32 + input.below(1300),
            _ => 0,
        };
        let kind = if how & 3 < 2 {
            DATA
        } else {
            3 + input.byte() % 6
        };
        let mut fields = vec![
            (TO, FROM.of(&welcome)),
            (FROM, TO.of(&welcome)),
            (ACKED, SEQ.of(&welcome)),
            (WINDOW, 1 << 20),
        ];
        if how & 4 == 0 {
            fields.extend([(FLAGS, OPENING), (SACK, stranger.first.into())]);
        }
        let mut packet = vec![0; payload];
        if payload > 0 {
            packet[0] = FOREIGN;
            put(&mut packet, BODY_LEN_AT, (payload - 32) as u64, 4);
            fields.extend([
                (SEQ, stranger.next.into()),
                (FRAGMENT, stranger.fragment.into()),
                (WHOLE, payload as u64),
            ]);
        }
        let mut bytes = build(kind, &fields, &packet);
        if how & 8 != 0 {
            mend(&mut bytes, input);
            if bytes.len() > HEADER {
                bytes[HEADER] = FOREIGN;
            }
        } else if payload > 0 {
            stranger.next = stranger.next.wrapping_add(1);
            stranger.fragment = stranger.fragment.wrapping_add(1);
        }
        seal(&mut bytes);
        self.users[end].foreign = true;
        self.unlawful.insert(FROM.of(&welcome));
        let channel = how >> 4 & 1;
        // Its command channel has been confirmed; its data channel is only claimed.
        if channel == 0 {
            self.proven.insert(at_home);
        }
        let from = (at_home.0, channel);
        let to = (end as u8, channel);
        self.net.borrow_mut().arrive(Datagram { from, to, bytes });
        self.poll(end, 64);
    }

    /// Delivers a datagram that must change nothing, while nothing else is to be done.
    fn strike(&mut self, datagram: Datagram, segment: Option<usize>) {
        let end = usize::from(datagram.to.0);
        let (from, len) = (datagram.from, datagram.bytes.len() as u64);
        let mut quiet = false;
        // Datagrams that the service has rejected leave when it accepts them.
        let willing = self.net.borrow().faults.0 == 0;
        for _ in 0..8 {
            quiet = quiet || !self.poll(end, 64);
        }
        let before = self.state(end, from);
        let segment = segment.unwrap_or_else(|| len.max(1) as usize);
        self.net.borrow_mut().arrive_cut(datagram, segment);
        self.poll(end, 64);
        if !quiet || !willing {
            return;
        }
        let after = self.state(end, from);
        assert_eq!(
            before.0, after.0,
            "a datagram of no session changed something"
        );
        assert!(after.1 - before.1 <= len, "{len} bytes answered with more");
    }

    /// Returns the visible state of a port, except for the counts of bad datagrams; and the bytes
    /// sent to `to`.
    fn state(&self, end: usize, to: Address) -> ((ReliableStats, usize, u64, u64), u64) {
        let port = &self.ports[end];
        let stats = ReliableStats {
            datagrams_in: 0,
            datagrams_out: 0,
            gso_batches_out: 0,
            malformed: 0,
            damaged: 0,
            old_session: 0,
            refused: 0,
            ..*port.stats()
        };
        let net = self.net.borrow();
        let sent = net.out[end].get(&to).copied().unwrap_or(0);
        let others = net.out[end].values().sum::<u64>() - sent;
        let calls = self.users[end].calls;
        ((stats, port.sessions(), calls, others), sent)
    }
}
