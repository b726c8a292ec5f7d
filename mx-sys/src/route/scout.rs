//! What the locators see of the ports before the endpoint does.
//!
//! ```text
//!   TCP port --> Scout ----> endpoint          rdm port --> Settling --> endpoint
//!                  |                                            |
//!                  `-- questions, and all of                    `-- ups and downs of links
//!                      the links that ask --> locators              that were looked for --> locator
//! ```
//!
//! Knows nothing of: what a locator does with it, and when.

use super::locator::{Locator, Locators, What, recognise};
use super::relay::Watch;
use mx_proto::port::{HeaderBytes, LinkDown};
use mx_proto::{LinkId, Source};

/// Watches the TCP port: what belongs to a locator does not reach the endpoint.
pub(super) struct Scout<'a>(pub(super) &'a mut Locators);

impl Watch for Scout<'_> {
    fn on_up(&mut self, link: LinkId) -> bool {
        self.on_writable(link)
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) -> Option<LinkDown> {
        match self.0.asking(link) {
            Some(locator) => {
                locator.on_down(link, reason);
                None
            }
            None => Some(reason),
        }
    }

    fn on_stranger<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: &B,
    ) -> bool {
        if let Some(locator) = self.0.asking(link) {
            locator.on_answer(link, header, body);
            return false;
        }
        if self.0.is_answering(link) {
            return false;
        }
        if let Some((What::Question(of), known)) = recognise(header) {
            self.0.answering(of).on_question(link, known, body);
            return false;
        }
        if let Some((What::Hail(of), true)) = recognise(header) {
            self.0.answering(of).on_hail(link);
            return false;
        }
        true
    }

    fn on_writable(&mut self, link: LinkId) -> bool {
        match self.0.asking(link) {
            Some(locator) => {
                locator.on_room(link);
                false
            }
            None => true,
        }
    }
}

/// Watches the rdm port: attempts end here.
pub(super) struct Settling<'a> {
    pub(super) locator: &'a mut Locator,
    /// Our provider.
    pub(super) ours: &'a str,
}

impl Watch for Settling<'_> {
    fn on_up(&mut self, link: LinkId) -> bool {
        self.locator.settle(self.ours, link, None);
        true
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) -> Option<LinkDown> {
        let settled = self.locator.settle(self.ours, link, Some(reason));
        settled.or(Some(reason))
    }
}
