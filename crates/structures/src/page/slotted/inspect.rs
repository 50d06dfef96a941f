//! Looking for damage in a slotted page, without trusting a byte of it.

use super::*;

/// Lists what is wrong with the page's layout: slots and heap apart, records inside the heap and apart, every byte of the heap
/// accounted for, fences and prefix in agreement, heads padded with zeros, keys ascending and within the fences. As long
/// as the list is empty the other functions of this module can be used on the page.
pub fn inspect(page: &[u8]) -> Vec<String> {
    let mut wrong = Vec::new();
    let size = slot_size(page);
    let fences = get(page, LOWER) + get(page, UPPER);
    let slots_end = SLOTS + usize::from(count(page)) * size;
    if fences > get(page, HEAP) || slots_end + get(page, HEAP) > page.len() {
        wrong.push(format!(
            "{} slots, a heap of {} bytes and fences of {fences} bytes do not fit in {} bytes",
            count(page),
            get(page, HEAP),
            page.len()
        ));
        return wrong;
    }
    let expected_prefix = builder::common_prefix_len(lower(page), upper(page));
    if prefix_len(page) != expected_prefix {
        wrong.push(format!("the prefix is {} bytes, the fences share {expected_prefix}", prefix_len(page)));
        return wrong;
    }
    if !upper(page).is_empty() && lower(page) >= upper(page) {
        wrong.push("the lower fence is not below the upper one".to_owned());
    }
    records(page, page.len() - fences, &mut wrong);
    if wrong.is_empty() && size == NODE_SLOT {
        keys(page, &mut wrong);
    }
    wrong
}

fn records(page: &[u8], heap_end: usize, wrong: &mut Vec<String>) {
    let mut extents = Vec::with_capacity(usize::from(count(page)));
    for slot in 0..count(page) {
        let (position, suffix_len) = locate(page, slot);
        let fixed = position + LENGTH_SIZE + rest_len(suffix_len);
        if position < heap_start(page) || fixed > heap_end || fixed + get(page, position) > heap_end {
            wrong.push(format!("the record of slot {slot} at {position} is not inside the heap"));
            return;
        }
        extents.push((position, fixed + get(page, position)));
    }
    extents.sort_unstable();
    if let Some(pair) = extents.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        wrong.push(format!("records overlap at {}", pair[1].0));
    }
    let live: usize = extents.iter().map(|(start, end)| end - start).sum();
    if live + get(page, GARBAGE) != heap_end - heap_start(page) {
        wrong.push(format!(
            "{live} bytes of records and {} of garbage are not a heap of {}",
            get(page, GARBAGE),
            heap_end - heap_start(page)
        ));
    }
}

fn keys(page: &[u8], wrong: &mut Vec<String>) {
    let mut last = Vec::new();
    let mut key = Vec::new();
    for slot in 0..count(page) {
        let entry = &node_slots(page)[usize::from(slot)];
        let padding = slot_head(entry).checked_shl(8 * slot_key_len(entry).min(HEAD_SIZE) as u32).unwrap_or(0);
        if padding != 0 {
            wrong.push(format!("the head of slot {slot} goes on behind its key"));
        }
        key_into(page, slot, &mut key);
        if slot > 0 && key <= last {
            wrong.push(format!("the key of slot {slot} is not above the one before it"));
        }
        let below = key.as_slice() < lower(page) && !(slot == 0 && level(page) > 0);
        let above = !upper(page).is_empty() && key.as_slice() >= upper(page);
        if below || above {
            wrong.push(format!("the key of slot {slot} is outside the fences"));
        }
        std::mem::swap(&mut last, &mut key);
    }
}
