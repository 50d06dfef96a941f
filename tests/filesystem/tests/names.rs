//! What the real driver creates has names that survive a power cut, in whatever order a file system keeps them.

use filesystem::{End, Mounted};
use real_driver::{DirectoryLock, Options, RealDriver};

fn mounted_or_skipped(seed: u64) -> Option<Mounted> {
    let mounted = Mounted::new(seed);
    mounted.inspect_err(|error| println!("skipped: no file system in user space can be mounted: {error}")).ok()
}

/// Each of them is lost with a probability of one half if its name is not synced.
const DIRECTORIES: u64 = 12;

#[test]
fn a_directory_that_was_opened_survives_whichever_process_made_it() {
    let Some(volume) = mounted_or_skipped(1) else { return };
    // A process that was killed has made some of them; the others lack two levels.
    let path = |number| match number % 2 {
        0 => volume.path().join(format!("database-{number}")),
        _ => volume.path().join(format!("outer-{number}/database")),
    };
    for number in 0..DIRECTORIES {
        if number % 2 == 0 {
            std::fs::create_dir(path(number)).expect("the name is free");
        }
        RealDriver::open(Options::new("disk", path(number))).expect("it can be opened");
    }
    volume.end(End::PowerCut);
    let lost: Vec<u64> = (0..DIRECTORIES).filter(|number| !path(*number).is_dir()).collect();
    assert_eq!(lost, [0_u64; 0]);
}

#[test]
fn a_lock_that_was_taken_leaves_its_file() {
    let Some(volume) = mounted_or_skipped(2) else { return };
    let path = |number| volume.path().join(format!("database-{number}"));
    for number in 0..DIRECTORIES {
        RealDriver::open(Options::new("disk", path(number))).expect("it can be opened");
        DirectoryLock::acquire(&path(number)).expect("the lock is free");
    }
    volume.end(End::PowerCut);
    let lost: Vec<u64> = (0..DIRECTORIES).filter(|number| !path(*number).join(DirectoryLock::NAME).is_file()).collect();
    assert_eq!(lost, [0_u64; 0], "without its lock's file a creation that was cut off is not known as one");
}
