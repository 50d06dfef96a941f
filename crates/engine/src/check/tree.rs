//! A b-tree from its root: nodes, long values, the free list; and that every page is exactly one of them.

use super::Examiner;
use crate::Error;
use structures::organization::allocator;
use structures::organization::b_tree::stored::{self, Stored};
use structures::organization::b_tree::{self, Expected, check_node, overflow};
use structures::page::{PageKind, header, slotted};

/// What a page is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Unknown,
    Allocator,
    Node,
    LongValue,
    Free,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Unknown => "unknown",
            Role::Allocator => "the page that allocates",
            Role::Node => "a node",
            Role::LongValue => "part of a long value",
            Role::Free => "a free page",
        }
    }
}

/// How often free pages are counted that come and go meanwhile.
const COUNTINGS_MAX: u32 = 10;

fn in_words(state: &allocator::State, found: u32) -> String {
    format!("it counts {} free pages, the list has {found}", state.free_count)
}

/// What the partition's pages are used for, as far as they were met.
struct Roles(Vec<Role>);

impl Examiner<'_> {
    /// Follows the tree. Returns why it was not looked for pages that are neither in use nor free, if it was not.
    pub(super) async fn check_tree(&mut self, state: allocator::State) -> Option<Error> {
        let before = self.findings();
        let had_ended = self.engine.transactions.check_ended();
        let mut roles = Roles(vec![Role::Unknown; state.page_count as usize]);
        roles.0[0] = Role::Allocator;
        let mut stack = vec![(b_tree::ROOT, Expected::ROOT)];
        let mut visited = 0;
        while let Some((number, expected)) = stack.pop() {
            self.read_ahead(visited, &stack);
            visited += 1;
            if !self.claim(&mut roles, number, Role::Node) {
                continue;
            }
            let Some(page) = self.page(number).await else { continue };
            match check_node(&page, self.id(number), &expected) {
                Ok(_) if slotted::level(&page) == 0 => self.check_values(&mut roles, number, &page).await,
                Ok(children) => stack.extend(children.into_iter().map(|child| (child.number, child.expected))),
                Err(wrong) => wrong.into_iter().for_each(|what| self.report(number, what)),
            }
        }
        let found = self.check_free_list(&mut roles, state.free_head).await;
        if let Err(why) = had_ended.and_then(|()| self.engine.transactions.check_ended()) {
            // The pages of a long value are being freed beside this, wait for room in the log, or for a rollback that is tried again.
            return Some(why);
        }
        if let Some(found) = found.filter(|found| *found != state.free_count) {
            self.report_counts(0, in_words(&state, found));
        }
        // What lies behind damage was not reached and is not therefore lost.
        if self.findings() == before {
            let lost = roles.0.iter().enumerate().filter(|(_, role)| **role == Role::Unknown);
            for (number, _) in lost {
                self.report(number as u32, "it is lost: neither in use nor free");
            }
        }
        None
    }

    /// Now and then has the nodes read that are visited next.
    fn read_ahead(&self, visited: usize, stack: &[(u32, Expected)]) {
        let buffer = &self.engine.core.buffer;
        let ahead = buffer.ahead_max();
        if ahead > 0 && visited.is_multiple_of(ahead.div_ceil(2)) {
            let next = stack.iter().rev().take(ahead);
            buffer.read_all_ahead(next.map(|(number, _)| self.id(*number)).collect());
        }
    }

    /// Notes what a page is used for; false, with a finding, if it cannot be that.
    fn claim(&mut self, roles: &mut Roles, number: u32, role: Role) -> bool {
        let Some(present) = roles.0.get_mut(number as usize) else {
            self.report(number, format!("it is used as {} and lies beyond the partition's pages", role.name()));
            return false;
        };
        if *present != Role::Unknown {
            let what = format!("it is used twice, as {} and as {}", present.name(), role.name());
            self.report(number, what);
            return false;
        }
        *present = role;
        true
    }

    async fn check_values(&mut self, roles: &mut Roles, number: u32, leaf: &[u8]) {
        for slot in 0..slotted::count(leaf) {
            let stored = slotted::value(leaf, slot);
            if !stored::is_sound(stored) {
                self.report(number, format!("the value of slot {slot} has {} bytes, too few", stored.len()));
            } else if let Stored::Elsewhere(length, first) = stored::read(stored) {
                self.check_chain(roles, length, first).await;
            }
        }
    }

    /// Follows a long value through its pages.
    async fn check_chain(&mut self, roles: &mut Roles, length: usize, first: u32) {
        let (mut number, mut found) = (first, 0);
        while number != 0 {
            if !self.claim(roles, number, Role::LongValue) {
                return;
            }
            let Some(page) = self.page(number).await else { return };
            match overflow::read(&page) {
                Ok((next, part)) => {
                    found += part.len();
                    number = next;
                }
                Err(what) => return self.report(number, what),
            }
        }
        if found != length {
            self.report(first, format!("the long value that begins here has {found} bytes of {length}"));
        }
    }

    /// Compares the count of free pages with their list at one moment: page 0 changes with each of them, and has not meanwhile. A finding of
    /// two moments goes before that. Nothing is said if it changes all the time.
    pub(super) async fn check_free_count(&mut self) {
        for _ in 0..COUNTINGS_MAX {
            let Ok(first) = self.copy(0).await else { return };
            let state = allocator::read(&first);
            let found = self.count_free(&state).await;
            let Ok(again) = self.copy(0).await else { return };
            if header::sequence(&first) == header::sequence(&again) {
                let found = found.filter(|found| *found != state.free_count);
                let what = found.map(|found| in_words(&state, found));
                let is_new = |what: &String| self.report.findings.iter().all(|finding| finding.what != *what);
                what.filter(is_new).into_iter().for_each(|what| self.report_counts(0, what));
                return;
            }
        }
    }

    /// How many pages the free list has, if it is one.
    async fn count_free(&self, state: &allocator::State) -> Option<u32> {
        let (mut number, mut found) = (state.free_head, 0);
        while number != 0 {
            let page = self.copy(number).await.ok()?;
            if header::kind(&page) != Some(PageKind::Free) || found == state.page_count {
                return None;
            }
            found += 1;
            number = allocator::next_free(&page);
        }
        Some(found)
    }

    /// How many pages are on the free list, if that has an end.
    async fn check_free_list(&mut self, roles: &mut Roles, head: u32) -> Option<u32> {
        let (mut number, mut found) = (head, 0);
        while number != 0 {
            if !self.claim(roles, number, Role::Free) {
                return None;
            }
            let page = self.page(number).await?;
            if header::kind(&page) != Some(PageKind::Free) {
                self.report(number, "it is on the free list but not free");
                return None;
            }
            found += 1;
            number = allocator::next_free(&page);
        }
        Some(found)
    }
}
