//! What an empty database takes: `cargo test --release -p entresol --test small_beginning -- --nocapture` prints it.

use base::units::{format_duration_ns, format_size};
use entresol::Opening;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const LIMIT: u64 = 20 << 20;

/// Bytes that the files of a directory take on its file system.
fn disk_bytes(directory: &Path) -> u64 {
    let files = directory.read_dir().expect("is there");
    files.map(|file| file.and_then(|file| file.metadata()).expect("is there").blocks() * 512).sum()
}

/// Bytes of this process that are in memory.
fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("says how much");
    line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).expect("a number") << 10
}

#[test]
#[allow(clippy::disallowed_methods, reason = "what a user waits for is printed, not asserted")]
fn an_empty_database_takes_little_disk_and_memory() {
    let directory = tempfile::tempdir().expect("creates");
    let path = directory.path().join("data");
    let (before, began) = (memory_bytes(), std::time::Instant::now());
    let store = Opening::in_directory(&path).expect("no configuration").open().expect("creates");
    let created_ns = began.elapsed().as_nanos() as f64;
    let (disk, memory) = (disk_bytes(&path), memory_bytes());
    println!(
        "an empty database: {} of disk, {} of memory ({} of them beside the program), created in {}",
        format_size(disk),
        format_size(memory),
        format_size(memory - before),
        format_duration_ns(created_ns)
    );
    assert_eq!(store.configuration().buffer.size, 256 << 20);
    assert_eq!(store.configuration().log.size, 1 << 30);
    assert!(disk <= LIMIT && memory - before <= LIMIT, "{disk} bytes of disk, {} of memory", memory - before);
    store.close().expect("closes");
}
