//! Files that are not as they were written.

use crate::ground::{
    PAGE_SIZE, assert_unaltered, bench, check, contents, damage, database, refusal, run, succeeds, text,
};
use base::Lsn;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn a_damaged_page_is_named_with_its_file() {
    let (_directory, data) = database();
    let file = data.join("account.pages");
    let place = 700 * PAGE_SIZE..701 * PAGE_SIZE;
    damage(&file, |bytes| bytes[place.start + 1_234] ^= 0x10);
    let before = fs::read(&file).expect("a file");
    let said = refusal(&run(&check(&data)));
    assert!(said.contains("file 'account.pages', page 700: its checksum"), "{said}");
    assert!(fs::read(&file).expect("a file") == before);
    // Transactions on other pages go through until one needs the damaged page.
    let said = refusal(&run(&bench(&data, "100000")));
    assert!(said.contains("page 700") && said.contains("file 'account.pages' is damaged"), "{said}");
    assert!(fs::read(&file).expect("a file")[place.clone()] == before[place]);
}

#[test]
fn a_sound_database_is_found_sound() {
    let (_directory, data) = database();
    let pages = |name| fs::read(data.join(name)).expect("a file");
    let before = ["account.pages", "history.pages"].map(pages);
    succeeds(&run(&check(&data)));
    assert!(["account.pages", "history.pages"].map(pages) == before);
}

#[test]
fn missing_and_shortened_files_are_named() {
    let shortened = [
        ("account.pages", 900 * PAGE_SIZE),
        ("branch.pages", PAGE_SIZE),
        ("history.pages", 0),
        ("log", 5_000),
        ("entresol.home", 64 << 10),
    ];
    for (name, length) in shortened {
        let (_directory, data) = database();
        let file = data.join(name);
        fs::OpenOptions::new().write(true).open(&file).expect("opens").set_len(length as u64).expect("shortens");
        for missing in [false, true] {
            if missing {
                fs::remove_file(&file).expect("removes");
            }
            let before = contents(&data);
            for arguments in [check(&data), bench(&data, "2000")] {
                let output = run(&arguments);
                assert!(!output.status.success(), "{arguments:?} is content with {length} bytes of {name}");
                let said = refusal(&output);
                assert!(said.contains(name), "{said} does not speak of {name}");
            }
            let after = contents(&data);
            assert!(before.keys().eq(after.keys()), "{name}: {:?} became {:?}", before.keys(), after.keys());
        }
    }
}

#[test]
fn one_copy_of_the_superblock_file_is_enough_and_none_is_not() {
    for copies in [vec![0], vec![64 << 10], vec![0, 64 << 10]] {
        let (_directory, data) = database();
        damage(&data.join("entresol.home"), |bytes| copies.iter().for_each(|copy| bytes[copy + 40] ^= 1));
        let before = contents(&data);
        let output = run(&bench(&data, "10"));
        if copies.len() == 1 {
            succeeds(&output);
        } else {
            let said = refusal(&output);
            assert!(said.contains("entresol.home") && said.contains(text(&data)), "{said}");
            assert_unaltered(&data, &before);
        }
    }
}

/// Runs the program on the database and kills it when the log has grown.
fn kill_at_work(data: &Path) {
    let begun = log_pages(&data.join("log")).len();
    let mut command = crate::ground::command(&bench(data, "1000000"));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    for _ in 0..600 {
        std::thread::sleep(Duration::from_millis(50));
        if log_pages(&data.join("log")).len() > begun + 60 {
            break;
        }
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// The sound pages of a log file in the order of the log: position, offset in the file, and the position that is known durable.
fn log_pages(file: &Path) -> Vec<(u64, usize, Lsn)> {
    const SIZE: usize = 4096;
    let bytes = fs::read(file).expect("a file");
    let mut pages: Vec<(u64, usize, Lsn)> = bytes
        .chunks_exact(SIZE)
        .enumerate()
        .filter_map(|(index, page)| {
            let position = u64::from_le_bytes(page[8..16].try_into().expect("eight bytes"));
            let header = engine::log::page::verify(page, position).ok()?;
            Some((position, index * SIZE, header.durable))
        })
        .collect();
    pages.sort_unstable();
    pages
}

#[test]
fn a_log_that_a_crash_cut_off_is_told_from_a_damaged_one() {
    let (directory, data) = database();
    kill_at_work(&data);
    let pages = log_pages(&data.join("log"));
    let last = pages.last().expect("the log has pages");

    let torn = directory.path().join("torn");
    crate::ground::copy_to(&data, &torn);
    damage(&torn.join("log"), |bytes| bytes[last.1 + 512..last.1 + 4096].fill(0xA5));
    succeeds(&run(&bench(&torn, "10")));
    succeeds(&run(&check(&torn)));

    let damaged = directory.path().join("damaged");
    crate::ground::copy_to(&data, &damaged);
    let attested = last.2;
    let victim = pages.iter().rev().find(|page| page.0 + 4096 * 8 < attested.0).expect("most of the log is attested");
    damage(&damaged.join("log"), |bytes| bytes[victim.1 + 100] ^= 4);
    let before = contents(&damaged);
    for arguments in [bench(&damaged, "10"), check(&damaged)] {
        let said = refusal(&run(&arguments));
        assert!(said.contains("log is damaged") && said.contains("before its end") && said.contains("'log'"), "{said}");
        let place = format!("LSN {}", victim.0);
        assert!(said.contains(&place), "{said} does not name {place}");
        assert_unaltered(&damaged, &before);
    }
}
