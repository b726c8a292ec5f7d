//! TCP links of address exchanges that stay as long as the links they were for.
//!
//! ```text
//!   exchange over, both sides say "watched" --> kept --- the link goes ---> closed once nothing of it is left
//!                                                 `-- the TCP link ends --> the link's port asks the peer
//! ```
//!
//! The kernel closes the connections of a process that dies, but not of one that is stopped. So the end of a
//! watch is a reason to ask a peer over its fabric whether it is there, and nothing more: a connection may
//! also be cut on its way, or given up for its descriptor.
//!
//! Watches have a part of the TCP port's places, and one source a share of that part. A peer without one is
//! missed by its silence.
//!
//! Owns: which TCP link watches which link.
//! Not here: TCP, the fabric.
//! Cost: a descriptor on both sides, some 350 bytes here and 3.8 KiB in the kernel; nothing while it lasts.

use mx_proto::LinkId;
use mx_proto::origin::Source;
use mx_proto::shares::Shares;
use std::collections::HashMap;

/// Watches have one in so many of the TCP port's places, which are one for each descriptor of the process:
/// a provider over sockets needs one for each peer as well.
const PART: usize = 4;

#[derive(Debug)]
pub(super) struct Watches {
    /// The watched link and the source of its peer, by the TCP link.
    watched: HashMap<LinkId, (LinkId, Source)>,
    /// The TCP link, by the watched link.
    by_link: HashMap<LinkId, LinkId>,
    /// TCP links of which the endpoint or the port has closed the link; what it sends last may be under way.
    fading: Vec<LinkId>,
    places: Shares,
}

impl Watches {
    /// Watches over a port with such places.
    pub(super) fn new(places: &Shares) -> Self {
        Self {
            watched: HashMap::new(),
            by_link: HashMap::new(),
            fading: Vec::new(),
            places: places.part(PART),
        }
    }

    /// There is room for a watch over a peer from there.
    pub(super) fn may_add(&self, source: Source) -> bool {
        self.places.may_take(source, 1)
    }

    /// From now on the TCP link `carrier` watches over `link`.
    pub(super) fn add(&mut self, carrier: LinkId, link: LinkId, source: Source) {
        self.places.take(source, 1);
        self.watched.insert(carrier, (link, source));
        self.by_link.insert(link, carrier);
    }

    pub(super) fn len(&self) -> usize {
        self.watched.len()
    }

    /// The TCP link is a watch.
    #[inline]
    pub(super) fn has(&self, carrier: LinkId) -> bool {
        !self.watched.is_empty() && self.watched.contains_key(&carrier)
    }

    /// The TCP link that watches over a link.
    #[inline]
    pub(super) fn of(&self, link: LinkId) -> Option<LinkId> {
        self.by_link.get(&link).copied()
    }

    /// A TCP link has ended. Returns the link it watched over, if that is not closed already.
    pub(super) fn remove(&mut self, carrier: LinkId) -> Option<LinkId> {
        let (link, source) = self.watched.remove(&carrier)?;
        self.places.give_back(source, 1);
        if self.watched.is_empty() {
            // What many peers needed that have gone.
            (self.watched, self.fading) = (HashMap::new(), Vec::new());
        }
        let open = self.by_link.remove(&link).is_some();
        if self.by_link.is_empty() {
            self.by_link = HashMap::new();
        }
        open.then_some(link)
    }

    /// A link is closed, or down.
    #[inline]
    pub(super) fn fade(&mut self, link: LinkId) {
        if let Some(carrier) = self.by_link.remove(&link) {
            self.fading.push(carrier);
        }
    }

    /// There are watches over links that have been closed.
    #[inline]
    pub(super) fn any_fading(&self) -> bool {
        !self.fading.is_empty()
    }

    /// Takes out the TCP links of links that are gone.
    pub(super) fn gone(&mut self, mut is_left: impl FnMut(LinkId) -> bool) -> Vec<LinkId> {
        let watched = &self.watched;
        let mut left = |carrier: &LinkId| {
            let of = watched.get(carrier);
            of.is_some_and(|(link, _)| is_left(*link))
        };
        let fading = std::mem::take(&mut self.fading);
        let (fading, gone) = fading.into_iter().partition(|carrier| left(carrier));
        self.fading = fading;
        for carrier in &gone {
            self.remove(*carrier);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: Source = Source(7);

    fn link(index: u32) -> LinkId {
        LinkId::new(index, 1)
    }

    #[test]
    fn a_watch_lasts_until_nothing_of_its_link_is_left() {
        let mut watches = Watches::new(&Shares::new(100, 50));
        watches.add(link(1), link(11), FROM);
        watches.add(link(2), link(12), FROM);
        assert!(watches.has(link(1)) && !watches.has(link(11)));
        assert_eq!(watches.of(link(12)), Some(link(2)));
        watches.fade(link(11));
        watches.fade(link(11));
        assert!(watches.has(link(1)) && watches.any_fading());
        assert_eq!(watches.gone(|_| true), []);
        assert_eq!(watches.gone(|left| left != link(11)), [link(1)]);
        assert!(!watches.has(link(1)) && !watches.any_fading());
        assert_eq!(watches.places.used(), 1);
    }

    #[test]
    fn the_end_of_a_watch_says_whose_peer_is_to_be_asked_unless_its_link_is_closed() {
        let mut watches = Watches::new(&Shares::new(100, 50));
        watches.add(link(1), link(11), FROM);
        watches.add(link(2), link(12), FROM);
        watches.fade(link(11));
        assert_eq!(watches.remove(link(1)), None);
        assert_eq!(watches.remove(link(1)), None);
        assert_eq!(watches.remove(link(2)), Some(link(12)));
        assert_eq!(watches.gone(|_| false), []);
        assert_eq!((watches.places.used(), watches.of(link(12))), (0, None));
    }

    #[test]
    fn watches_have_a_quarter_of_the_places_and_one_source_half_of_what_is_left() {
        let mut watches = Watches::new(&Shares::new(44, 50));
        let mut count = 0;
        while watches.may_add(FROM) {
            count += 1;
            watches.add(link(count), link(100 + count), FROM);
        }
        assert_eq!(count, 5);
        assert!(watches.may_add(Source(8)) && watches.may_add(Source::TRUSTED));
        watches.remove(link(1));
        assert!(watches.may_add(FROM));
    }
}
