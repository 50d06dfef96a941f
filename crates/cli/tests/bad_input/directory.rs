//! Directories that hold something else, something newer, or something in use.

use crate::ground::{
    assert_unaltered, bench, check, contents, damage, database, refusal, run, scratch, succeeds, text,
};
use std::fs;

#[test]
fn a_directory_that_is_no_database_stays_as_it_is() {
    let directory = scratch();
    let foreign = [("holiday.jpg", "not a page"), ("log", "a program's own log\n"), ("double-write", "twice")];
    for (name, bytes) in foreign {
        let data = directory.path().join(format!("with {name}"));
        fs::create_dir(&data).expect("creates");
        fs::write(data.join(name), bytes).expect("writes");
        let before = contents(&data);
        for arguments in [bench(&data, "10"), check(&data)] {
            let said = refusal(&run(&arguments));
            assert!(said.contains(text(&data)), "{said}");
            assert_unaltered(&data, &before);
        }
    }
}

#[test]
fn a_path_that_is_no_directory_is_named() {
    let directory = scratch();
    let absent = directory.path().join("absent");
    let said = refusal(&run(&check(&absent)));
    assert!(said.contains(text(&absent)) && !absent.exists(), "{said}");
    let file = directory.path().join("file");
    fs::write(&file, "no directory").expect("writes");
    for arguments in [bench(&file, "10"), check(&file), bench(&file.join("below"), "10")] {
        let said = refusal(&run(&arguments));
        assert!(said.contains(text(&file)), "{said}");
    }
    assert_eq!(fs::read(&file).expect("a file"), b"no directory");
}

#[test]
fn a_newer_format_is_refused_by_number() {
    let (_directory, data) = database();
    damage(&data.join("entresol.home"), |bytes| {
        for copy in [0, 64 << 10] {
            bytes[copy + 8..copy + 12].copy_from_slice(&77_u32.to_le_bytes());
        }
    });
    let before = contents(&data);
    for arguments in [bench(&data, "10"), check(&data)] {
        let said = refusal(&run(&arguments));
        assert!(said.contains("format 77") && said.contains("newer release") && said.contains(text(&data)), "{said}");
        assert_unaltered(&data, &before);
    }
}

#[test]
fn a_database_that_is_open_elsewhere_is_left_alone() {
    let (_directory, data) = database();
    let before = contents(&data);
    let lock = fs::File::open(data.join("entresol.lock")).expect("the lock stays in the directory");
    lock.try_lock().expect("the lock is free");
    for arguments in [bench(&data, "10"), check(&data)] {
        let said = refusal(&run(&arguments));
        assert!(said.contains("open already") && said.contains(text(&data)), "{said}");
        assert_unaltered(&data, &before);
    }
    drop(lock);
    succeeds(&run(&bench(&data, "10")));
}

#[test]
fn a_database_whose_device_is_elsewhere_is_locked_there() {
    let (_directory, data) = database();
    let other = scratch();
    let configuration = format!("[device.disk]\npath = \"{}\"\n", text(&data));
    fs::write(other.path().join("entresol.toml"), configuration).expect("writes");
    let lock = fs::File::open(data.join("entresol.lock")).expect("the lock stays in the directory");
    lock.try_lock().expect("the lock is free");
    let said = refusal(&run(&bench(other.path(), "10")));
    assert!(said.contains("open already") && said.contains(text(&data)), "{said}");
    drop(lock);
    succeeds(&run(&bench(other.path(), "10")));
}
