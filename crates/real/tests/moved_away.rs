//! Who moves the directory of an open database away and makes another one there does not have the new one's files written.
#![allow(clippy::disallowed_methods)]

use driver::{DeviceId, Driver, Op, Token};
use entresol_real::{Options, RealDriver};

#[test]
fn files_of_a_directory_made_in_place_of_one_that_was_moved_away_are_not_opened_or_removed() {
    let parent = tempfile::tempdir().expect("a directory");
    let (path, moved) = (parent.path().join("database"), parent.path().join("moved"));
    let mut driver = RealDriver::open(Options::new("disk", &path)).expect("opens");
    std::fs::rename(&path, &moved).expect("moves");
    std::fs::create_dir(&path).expect("creates");
    std::fs::write(path.join("notes.pages"), b"another database's").expect("writes");
    let device = DeviceId(0);
    let open = |name: &str| Op::Open { device, name: name.into(), create: true };
    for op in [open("notes.pages"), open("new"), Op::Remove { device, name: "notes.pages".into() }] {
        let shown = format!("{op:?}");
        driver.submit(Token(1), op);
        let mut done = Vec::new();
        while done.is_empty() {
            driver.park(None, &mut done).expect("a real machine goes on");
        }
        assert!(done[0].result.is_err(), "{shown}: {:?}", done[0].result);
    }
    assert!(path.join("notes.pages").exists() && !path.join("new").exists());
}
