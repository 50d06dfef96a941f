//! A page of any bytes is checked; one that is found sound can be used.
#![no_main]

use base::{PageId, PartitionId};
use engine::organization::b_tree::{Expected, check_node, overflow};
use engine::page::header::PAGE_SIZE_MIN;
use engine::page::{PageKind, header, slotted};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let size = bytes.len().next_power_of_two().clamp(PAGE_SIZE_MIN, 4096);
    let mut page = bytes.to_vec();
    page.resize(size, 0);
    let id = PageId::new(PartitionId(0), 7);
    let _ = header::verify(&page, id);
    let _ = overflow::read(&page);
    header::set_kind(&mut page, PageKind::Node);
    header::set_id(&mut page, id);
    let expected = Expected { level: None, lower: Vec::new(), upper: Vec::new() };
    let _ = check_node(&page, id, &expected);
    if !slotted::inspect(&page).is_empty() {
        return;
    }
    let mut key = Vec::new();
    for slot in 0..slotted::count(&page) {
        slotted::key_into(&page, slot, &mut key);
        assert_eq!(slotted::search(&page, &key), Ok(slot), "a key of a sound page is found where it is");
    }
    while slotted::count(&page) > 0 {
        slotted::remove(&mut page, 0);
    }
    assert!(slotted::inspect(&page).is_empty(), "a sound page stays sound");
});
