//! Lists of remotes, in the order in which they are sent a Revoke or lent credits.
//!
//! ```text
//!   Above    more than the minimum         front: longest not used     revoked first
//!   Within   the minimum or less           front: longest not used     revoked when a remote has none
//!   Wanting  its share, and waits for more front: longest waiting      served last
//!   Short    less than its share           front: longest waiting      served second
//!   Poor     none at all                   front: longest waiting      served first
//! ```
//!
//! The links are in the accounts; a remote is in at most one list. Every call is O(1).

use super::Accounts;
use super::lender::AccountList;

/// Front, back and length of every list.
#[derive(Debug)]
pub(super) struct Lists {
    ends: [Ends; 5],
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    front: u32,
    back: u32,
    len: u32,
}

impl Lists {
    /// Stands for no remote; no table grows this large.
    pub(super) const NO_REMOTE: u32 = u32::MAX;

    pub(super) fn new() -> Self {
        let empty = Ends {
            front: Self::NO_REMOTE,
            back: Self::NO_REMOTE,
            len: 0,
        };
        Self { ends: [empty; 5] }
    }

    pub(super) fn front(&self, place: AccountList) -> Option<u32> {
        let ends = self.ends.get(place as usize)?;
        (ends.front != Self::NO_REMOTE).then_some(ends.front)
    }

    pub(super) fn len(&self, place: AccountList) -> u32 {
        self.ends.get(place as usize).map_or(0, |ends| ends.len)
    }

    /// Moves a remote to the back of a list, or out of all lists.
    pub(super) fn put(&mut self, all: &mut impl Accounts, remote: u32, place: AccountList) {
        self.remove(all, remote);
        let Some((account, _)) = all.account(remote) else {
            return;
        };
        account.place = place;
        let Some(ends) = self.ends.get_mut(place as usize) else {
            return;
        };
        let back = std::mem::replace(&mut ends.back, remote);
        ends.len += 1;
        (account.before, account.next) = (back, Self::NO_REMOTE);
        match all.account(back) {
            Some((before, _)) => before.next = remote,
            None => ends.front = remote,
        }
    }

    fn remove(&mut self, all: &mut impl Accounts, remote: u32) {
        let Some((account, _)) = all.account(remote) else {
            return;
        };
        let place = std::mem::replace(&mut account.place, AccountList::Nowhere);
        let (before, next) = (account.before, account.next);
        let Some(ends) = self.ends.get_mut(place as usize) else {
            return;
        };
        ends.len -= 1;
        match all.account(before) {
            Some((account, _)) => account.next = next,
            None => ends.front = next,
        }
        match all.account(next) {
            Some((account, _)) => account.before = before,
            None => ends.back = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Lender;
    use crate::origin::Source;

    struct All(Vec<Lender>);

    impl Accounts for All {
        fn account(&mut self, remote: u32) -> Option<(&mut Lender, Source)> {
            let account = self.0.get_mut(remote as usize)?;
            Some((account, Source::TRUSTED))
        }
    }

    const LISTS: [AccountList; 5] = [
        AccountList::Above,
        AccountList::Within,
        AccountList::Wanting,
        AccountList::Short,
        AccountList::Poor,
    ];

    fn drain(lists: &mut Lists, all: &mut All, place: AccountList) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some(remote) = lists.front(place) {
            order.push(remote);
            lists.put(all, remote, AccountList::Nowhere);
        }
        assert_eq!(lists.len(place), 0);
        order
    }

    #[test]
    fn a_list_keeps_the_order_of_entry_when_any_remote_leaves() {
        let (mut lists, mut all) = (Lists::new(), All(vec![Lender::default(); 8]));
        for remote in 0..8 {
            lists.put(&mut all, remote, AccountList::Above);
        }
        for remote in [0, 7, 3, 3] {
            lists.put(&mut all, remote, AccountList::Nowhere);
            assert_eq!(all.0[remote as usize].place, AccountList::Nowhere);
        }
        lists.put(&mut all, 2, AccountList::Above);
        assert_eq!(lists.len(AccountList::Above), 5);
        assert_eq!(
            drain(&mut lists, &mut all, AccountList::Above),
            [1, 4, 5, 6, 2]
        );
    }

    #[test]
    fn a_remote_is_in_one_list_only() {
        let (mut lists, mut all) = (Lists::new(), All(vec![Lender::default(); 3]));
        for place in LISTS {
            for remote in 0..3 {
                lists.put(&mut all, remote, place);
                assert_eq!(all.0[remote as usize].place, place);
            }
        }
        let filled: Vec<u32> = LISTS.iter().map(|place| lists.len(*place)).collect();
        assert_eq!(filled, [0, 0, 0, 0, 3]);
        assert_eq!(drain(&mut lists, &mut all, AccountList::Poor), [0, 1, 2]);
        // A remote that is not there is put nowhere.
        lists.put(&mut all, 3, AccountList::Poor);
        assert_eq!(lists.front(AccountList::Poor), None);
    }
}
