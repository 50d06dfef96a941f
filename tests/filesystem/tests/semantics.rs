//! What the file system keeps and loses, asked through the kernel.

#![allow(clippy::disallowed_methods, reason = "the files are the kernel's")]

use filesystem::{Effect, End, Mounted, Plan, Rule, Step};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

fn mounted_or_skipped(seed: u64) -> Option<Mounted> {
    let mounted = Mounted::new(seed);
    mounted.inspect_err(|error| println!("skipped: no file system in user space can be mounted: {error}")).ok()
}

const PAGE: usize = 4096;

fn open(path: &Path, flags: i32) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
    options.open(path).expect("the file system is there")
}

fn sync_directory(path: &Path) {
    File::open(path).and_then(|directory| directory.sync_all()).expect("it can be synced");
}

/// A file of one page whose name is durable, written full of sevens.
fn created(volume: &Mounted, name: &str, flags: i32) -> File {
    let file = open(&volume.path().join(name), flags);
    sync_directory(&volume.path());
    file.write_all_at(&[7; PAGE], 0).expect("there is room");
    file
}

fn read(volume: &Mounted, name: &str) -> Option<Vec<u8>> {
    std::fs::read(volume.path().join(name)).ok()
}

#[test]
fn a_write_that_asks_for_it_is_durable_and_so_is_what_was_synced() {
    let Some(volume) = mounted_or_skipped(1) else { return };
    for round in 0..20 {
        let file = created(&volume, &format!("dsync-{round}"), libc::O_DIRECT | libc::O_DSYNC);
        file.write_all_at(&[8; PAGE], PAGE as u64).expect("there is room");
        created(&volume, &format!("synced-{round}"), libc::O_DIRECT).sync_data().expect("it can be synced");
    }
    volume.end(End::PowerCut);
    for round in 0..20 {
        let both = [[7; PAGE], [8; PAGE]].concat();
        assert!(read(&volume, &format!("dsync-{round}")) == Some(both), "round {round}");
        assert!(read(&volume, &format!("synced-{round}")) == Some(vec![7; PAGE]), "round {round}");
    }
}

#[test]
fn what_was_not_synced_is_lost_kept_or_torn_by_sectors() {
    let Some(volume) = mounted_or_skipped(2) else { return };
    for round in 0..40 {
        let file = created(&volume, &format!("file-{round}"), libc::O_DIRECT);
        file.sync_all().expect("it can be synced");
        file.write_all_at(&[9; PAGE], 0).expect("it is there");
        assert!(read(&volume, &format!("file-{round}")) == Some(vec![9; PAGE]), "before the cut it is there");
    }
    volume.end(End::PowerCut);
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for round in 0..40 {
        let bytes = read(&volume, &format!("file-{round}")).expect("its name was synced");
        let sectors: Vec<bool> = bytes.chunks(512).map(|sector| sector == [9; 512]).collect();
        assert!(bytes.chunks(512).all(|sector| sector == [9; 512] || sector == [7; 512]));
        match (sectors.contains(&true), sectors.contains(&false)) {
            (false, _) => lost += 1,
            (_, false) => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 4 && kept > 4 && torn > 4, "{lost} lost, {kept} kept, {torn} torn");
}

#[test]
fn names_and_lengths_are_durable_once_they_are_synced() {
    let Some(volume) = mounted_or_skipped(3) else { return };
    let path = volume.path();
    for round in 0..30 {
        // Synced, but its name is not.
        open(&path.join(format!("nameless-{round}")), 0).sync_all().expect("it can be synced");
    }
    volume.end(End::PowerCut);
    let left = std::fs::read_dir(&path).expect("it can be read").count();
    assert!((1..30).contains(&left), "some names of thirty are lost: {left} are left");

    let files: Vec<File> = (0..30).map(|round| created(&volume, &format!("long-{round}"), 0)).collect();
    for (round, file) in files.into_iter().enumerate() {
        file.sync_all().expect("it can be synced");
        file.set_len(8 * PAGE as u64).expect("there is room");
        std::fs::remove_file(path.join(format!("long-{round}"))).expect("it is there");
    }
    volume.end(End::PowerCut);
    let lengths: Vec<usize> =
        (0..30).filter_map(|round| read(&volume, &format!("long-{round}"))).map(|bytes| bytes.len()).collect();
    assert!((1..30).contains(&lengths.len()), "some removals of thirty are lost");
    assert!(lengths.contains(&PAGE) && lengths.contains(&(8 * PAGE)), "{lengths:?}");
}

#[test]
fn a_killed_process_leaves_everything_and_locks_nothing() {
    let Some(volume) = mounted_or_skipped(4) else { return };
    let file = created(&volume, "file", libc::O_DIRECT);
    file.try_lock().expect("the lock is free");
    assert!(matches!(open(&volume.path().join("file"), 0).try_lock(), Err(TryLockError::WouldBlock)));
    drop(file);
    volume.end(End::Kill);
    assert!(read(&volume, "file") == Some(vec![7; PAGE]));
    open(&volume.path().join("file"), 0).try_lock().expect("the kernel has let go of it");
}

#[test]
fn requests_fail_as_planned() {
    let Some(volume) = mounted_or_skipped(5) else { return };
    let file = created(&volume, "file", libc::O_DIRECT);
    let rule = |step, first, count, effect| Rule { step, file: "file", first, count, effect };
    let rules = vec![
        rule(Step::Write, 2, 1, Effect::Error),
        rule(Step::Sync, 1, u64::MAX, Effect::Error),
        rule(Step::Read, 1, 1, Effect::Slow(Duration::from_millis(30))),
    ];
    let plan = Plan { end: End::Kill, at: u64::MAX, at_step: None, rules, room: Some(8 * PAGE as u64), overtaken: 0.0 };
    let _over = volume.begin(plan);
    file.write_all_at(&[8; PAGE], 0).expect("the first is let pass");
    let code = |result: io::Result<()>| result.map_err(|error| error.raw_os_error());
    assert_eq!(code(file.write_all_at(&[8; PAGE], 0)), Err(Some(libc::EIO)));
    file.write_all_at(&[8; PAGE], 0).expect("the third is let pass");
    assert_eq!((code(file.sync_all()), code(file.sync_data())), (Err(Some(libc::EIO)), Err(Some(libc::EIO))));
    assert_eq!(code(file.set_len(10 * PAGE as u64)), Err(Some(libc::ENOSPC)));
    file.set_len(9 * PAGE as u64).expect("that is what is left");
    assert_eq!(code(file.write_all_at(&[8; PAGE], 9 * PAGE as u64)), Err(Some(libc::ENOSPC)));
    let began = std::time::Instant::now();
    file.read_exact_at(&mut [0; PAGE], 0).expect("slow, but it comes");
    assert!(began.elapsed() >= Duration::from_millis(30));
    let injected = volume.end(End::Kill);
    assert_eq!((injected.errors(), injected.no_space), (3, 2), "{injected:?}");
    file.sync_all().expect("the plan is over");
}

#[test]
fn names_are_moved_and_found_and_full_directories_stay() {
    let Some(volume) = mounted_or_skipped(6) else { return };
    let path = volume.path();
    std::fs::create_dir(path.join("inner")).expect("the name is free");
    assert_eq!(std::fs::create_dir(path.join("inner")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    open(&path.join("inner/old"), 0).write_all_at(&[5; PAGE], 0).expect("there is room");
    std::fs::rename(path.join("inner/old"), path.join("inner/new")).expect("the same directory");
    assert_eq!(std::fs::remove_dir(path.join("inner")).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
    let names = |path: &Path| -> Vec<_> {
        path.read_dir().expect("a directory").map(|entry| entry.expect("an entry").file_name()).collect()
    };
    assert_eq!(names(&path.join("inner")), ["new"]);
    assert!(read(&volume, "inner/new") == Some(vec![5; PAGE]));
    sync_directory(&path.join("inner"));
    sync_directory(&path);
    std::fs::remove_file(path.join("inner/new")).expect("it is there");
    sync_directory(&path.join("inner"));
    volume.end(End::PowerCut);
    assert!(names(&path.join("inner")).is_empty());
}
