//! Checking nodes against every invariant. The caller walks the tree from the root, which has no fences, through the children
//! that each check returns; what it never meets must be on the free list or part of a long value.

use super::{CHILD_SIZE, ROOT, child};
use crate::page::header::{self, PageKind};
use crate::page::slotted;
use base::PageId;

/// What a node's parent says about it. An empty fence is no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The height above the leaves; `None` for the root.
    pub level: Option<u8>,
    /// The lower fence.
    pub lower: Vec<u8>,
    /// The upper fence.
    pub upper: Vec<u8>,
}

impl Expected {
    /// What is known of the root.
    pub const ROOT: Expected = Expected { level: None, lower: Vec::new(), upper: Vec::new() };
}

/// A child of a sound node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its page number.
    pub number: u32,
    /// What its parent says about it.
    pub expected: Expected,
}

/// Checks the node `page`: its layout, its keys, and that it is what its parent expects. Returns its children, none for a
/// leaf.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check_node(page: &[u8], id: PageId, expected: &Expected) -> Result<Vec<Child>, Vec<String>> {
    if header::kind(page) != Some(PageKind::Node) {
        return Err(vec!["it is not a b-tree node".to_owned()]);
    }
    let mut wrong = slotted::inspect(page);
    if header::id(page) != id {
        wrong.push(format!("it says that it is {}", header::id(page)));
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let level = slotted::level(page);
    if expected.level.is_some_and(|expected| expected != level) {
        wrong.push(format!("its level is {level}, its parent implies {:?}", expected.level.unwrap_or_default()));
    }
    if slotted::lower(page) != expected.lower || slotted::upper(page) != expected.upper {
        wrong.push("its fences are not the separators around it".to_owned());
    }
    let children = if level > 0 { children(page, &mut wrong) } else { Vec::new() };
    if wrong.is_empty() { Ok(children) } else { Err(wrong) }
}

fn children(page: &[u8], wrong: &mut Vec<String>) -> Vec<Child> {
    let count = slotted::count(page);
    if count == 0 {
        wrong.push("it is an inner node without children".to_owned());
        return Vec::new();
    }
    if slotted::key_len(page, 0) != slotted::prefix_len(page) {
        wrong.push("its first entry has a key".to_owned());
    }
    let mut children = Vec::with_capacity(usize::from(count));
    let mut lower = slotted::lower(page).to_vec();
    for slot in 0..count {
        if slotted::value(page, slot).len() != CHILD_SIZE {
            wrong.push(format!("the entry of slot {slot} is not a page number"));
            continue;
        }
        let number = child(page, slot);
        if number <= ROOT {
            wrong.push(format!("the child of slot {slot} is page {number}"));
        }
        let mut upper = slotted::upper(page).to_vec();
        if slot + 1 < count {
            slotted::key_into(page, slot + 1, &mut upper);
        }
        if lower >= upper && !upper.is_empty() {
            wrong.push(format!("the child of slot {slot} has no keys"));
        }
        let level = Some(slotted::level(page) - 1);
        children.push(Child { number, expected: Expected { level, lower, upper: upper.clone() } });
        lower = upper;
    }
    children
}
