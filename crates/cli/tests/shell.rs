//! `entresol shell` as a real process, fed through a pipe.
#![allow(clippy::disallowed_methods, reason = "tests make and look into directories")]

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn entresol(directory: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
    command.current_dir(directory).args(line.split(' '));
    command
}

/// Feeds the lines to a shell. Returns what it printed and said of mistakes, and how it ended.
fn shell(directory: &Path, lines: &str) -> (String, String, Output) {
    let mut command = entresol(directory, "shell bank");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let fed = child.stdin.take().expect("a pipe").write_all(lines.as_bytes());
    // One that has nothing to open ends without reading.
    assert!(fed.is_ok() || fed.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe));
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output)
}

/// A bank with tables of both kinds.
fn bank() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"32 MiB\"\n[server]\nstandbys = 1\n\
                [partition.teller]\norganization = \"set\"\n[partition.branch]\norganization = \"set\"\n\
                record = { balance = \"i64\", name = \"bytes(84)\" }";
    std::fs::create_dir(directory.path().join("bank")).expect("a directory");
    std::fs::write(directory.path().join("bank/entresol.toml"), text).expect("a file");
    let line = "bench debit-credit --data bank --scale 1 --transactions 1 --clients 1 --json";
    let output = entresol(directory.path(), line).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    directory
}

#[test]
fn requests_come_through_a_pipe_and_what_they_did_stays() {
    let bank = bank();
    let lines = "put account 100001 \"12345678 a new one\"\nget account 100001\n\nput teller 77 0x0500000000000000\n\
                 add teller 77 37\nset branch 0 balance 1000\nadd branch 0 balance -58\nget branch 0 balance\n\
                 partitions\ndelete account 100001\nquit\nget this is not read";
    let (answers, mistakes, output) = shell(bank.path(), lines);
    assert!(output.status.success() && mistakes.is_empty(), "{mistakes}");
    let answers: Vec<&str> = answers.lines().collect();
    let expected = ["done", "\"12345678 a new one\"", "done", "42", "done", "942", "942"];
    assert_eq!(answers[..7], expected);
    assert_eq!(answers[7], "account: b-tree");
    assert!(answers[8].ends_with("of files on disk") && answers[8].contains(" in use, "), "{answers:?}");
    assert!(answers.contains(&"branch: set (balance: i64, name: bytes(84))"), "{answers:?}");
    // The process has ended; another finds what was acknowledged.
    let (answers, ..) = shell(bank.path(), "get teller 77\nget branch 0 balance\n");
    assert_eq!(answers.lines().collect::<Vec<_>>(), ["0x2a00000000000000", "942"]);
}

#[test]
fn a_registered_procedure_is_called() {
    let bank = bank();
    // Account 5, teller 3, branch 0, amount 9: eight bytes each, the least first.
    let parameters = [5_u64, 3, 0, 9].map(|word| word.swap_bytes()).map(|word| format!("{word:016x}")).concat();
    let (answers, mistakes, _) = shell(bank.path(), &format!("call debit-credit 0x{parameters}\nget account 5\n"));
    assert_eq!(mistakes, "");
    let answers: Vec<&str> = answers.lines().collect();
    assert!(answers[1].starts_with(answers[0]), "the account's new balance: {answers:?}");
}

#[test]
fn mistakes_are_named_by_line_and_do_not_end_it() {
    let bank = bank();
    let lines = "get accounts 17\ngat account 17\nget account\nget account 123456789\ncall debit-credt\nadd branch 0 nam 3\n\
                 set branch 0 balance many\nget branch 0 balance";
    let (answers, mistakes, output) = shell(bank.path(), lines);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(answers.lines().count(), 1, "{answers}");
    let expected = [
        "line 1: error: there is no partition 'accounts'",
        "line 2: error: there is no request 'gat' (did you mean 'get'?)",
        "line 3: error: the form is: get PARTITION KEY [FIELD]",
        "line 4: error: partition 'account' holds no record with this key; insert it, or correct the key",
        "line 5: error: there is no procedure 'debit-credt'; registered are:",
        "line 6: error:",
        "line 7: error: 'many' is not of type i64",
        "error: 7 requests failed",
    ];
    for (line, expected) in mistakes.lines().zip(expected) {
        assert!(line.starts_with(expected), "{line}: not {expected}");
    }
    assert_eq!(mistakes.lines().count(), expected.len(), "{mistakes}");
}

#[test]
fn partitions_are_renamed_truncated_compacted_and_dropped() {
    let bank = bank();
    let lines = "put account 5 pens\nrename account ledger\nget ledger 5\nget account 5\nrename ledger teller\n\
                 truncate ledger\nget ledger 5\nput ledger 5 ink\nget ledger 5\nrename ledger account\ncompact teller\n";
    let (answers, mistakes, _) = shell(bank.path(), lines);
    let answers: Vec<&str> = answers.lines().collect();
    assert_eq!(answers[..3], ["done", "done", "\"pens\""]);
    assert!(answers[3].starts_with("done; ") && answers[3].ends_with(" given back"), "{answers:?}");
    assert_eq!(answers[4..7], ["done", "\"ink\"", "done"]);
    // Of a set, which has few records.
    assert!(answers[7].starts_with("done") && answers.len() == 8, "{answers:?}");
    let expected = [
        "line 4: error: there is no partition 'account'",
        "line 5: error: there is a partition 'teller' already; use another name, or ensure it where it may be there",
        "line 7: error: partition 'ledger' holds no record with this key; insert it, or correct the key",
        "error: 3 requests failed",
    ];
    for (line, expected) in mistakes.lines().zip(expected) {
        assert!(line.starts_with(expected), "{line}: not {expected}");
    }
    assert_eq!(mistakes.lines().count(), expected.len(), "{mistakes}");
    // Another process finds it so. The pages of a long value that is deleted are room to give back.
    let lines = format!("get account 5\nput account 6 {}\ndelete account 6\n", "x".repeat(300_000));
    let (answers, mistakes, output) = shell(bank.path(), &lines);
    assert!(output.status.success(), "{mistakes}");
    assert_eq!(answers.lines().collect::<Vec<_>>(), ["\"ink\"", "done", "done"]);
    let lines = "compact account\nget account 5\ncompact account\ndrop account\npartitions\n";
    let (answers, mistakes, output) = shell(bank.path(), lines);
    assert!(output.status.success(), "{mistakes}");
    let lines: Vec<&str> = answers.lines().collect();
    for given_back in [lines[0], lines[3]] {
        assert!(given_back.starts_with("done; ") && given_back.ends_with(" given back"), "{answers}");
    }
    assert_eq!(lines[1..3], ["\"ink\"", "done"]);
    assert!(lines.contains(&"teller: set") && !answers.contains("account:"), "{answers}");
}

#[test]
fn nothing_is_created_where_no_database_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, mistakes, output) = shell(directory.path(), "help\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(mistakes.contains("'bank' is not an Entresol database"), "{mistakes}");
    assert_eq!(directory.path().read_dir().expect("it is there").count(), 0);
}

#[test]
fn the_cache_is_changed_while_the_database_runs() {
    let bank = bank();
    let file = bank.path().join("bank/entresol.toml");
    let text = std::fs::read_to_string(&file).expect("it is there");
    let cache = "\n[cache]\ndevice = \"disk\"\nsize = \"64 pages\"\ndesign = \"dual-write\"\n";
    std::fs::write(&file, text + cache).expect("writes");
    let lines = "cache\ncache design lazy-cleaning\nput account 100001 new\ncache resize 1MiB\nget account 100001\ncache off\ncache\n\
                 get account 100001\ncache on\ncache admit account no\ncache\ncache on disk \"32 pages\"\nstatistics\n\
                 get account 100001\n";
    let (answers, mistakes, output) = shell(bank.path(), lines);
    // An opening says that such a cache is no faster.
    assert!(output.status.success() && !mistakes.contains("error"), "{mistakes}");
    let (held, answers): (Vec<&str>, Vec<&str>) = answers.lines().partition(|line| line.contains("slots are in use"));
    assert!(held.len() == 2 && held[1].contains(" of 128 slots"), "{held:?}");
    let expected = [
        "dual-write on device 'disk': 64 pages, 512 KiB",
        "lazy-cleaning on device 'disk': 64 pages, 512 KiB",
        "done",
        "lazy-cleaning on device 'disk': 128 pages, 1 MiB",
        "\"new\"",
        "there is no cache",
        "there is no cache",
        "\"new\"",
        "lazy-cleaning on device 'disk': 128 pages, 1 MiB",
        "done",
        "lazy-cleaning on device 'disk': 128 pages, 1 MiB",
        "pages of 'account' may not enter it",
        "lazy-cleaning on device 'disk': 32 pages, 256 KiB",
    ];
    assert_eq!(answers[..expected.len()], expected);
    assert!(answers.iter().any(|line| line.starts_with("cache on disk")), "{answers:?}");
    assert_eq!(answers.last(), Some(&"\"new\""));
    // Another one stands above it.
    let lines = "upper-cache on disk \"16 pages\"\nget account 100001\nstatistics\nupper-cache resize 1MiB\nupper-cache off\n\
                 upper-cache\nupper-cache on\nget account 100001\n";
    let (answers, mistakes, output) = shell(bank.path(), lines);
    assert!(output.status.success(), "{mistakes}");
    let answers: Vec<&str> = answers.lines().collect();
    let expected = [
        "migrate-all on device 'disk': 128 pages, 1 MiB",
        "there is no upper-cache",
        "there is no upper-cache",
        "migrate-all on device 'disk': 128 pages, 1 MiB",
        "\"new\"",
    ];
    assert_eq!(answers[..2], ["migrate-all on device 'disk': 16 pages, 128 KiB", "\"new\""]);
    assert_eq!(answers[answers.len() - expected.len()..], expected);
    assert!(answers.iter().any(|line| line.starts_with("upper-cache on")), "{answers:?}");
    // The configuration says what holds after the next opening.
    let (answers, ..) = shell(bank.path(), "cache\nget account 100001\n");
    let answers: Vec<&str> = answers.lines().filter(|line| !line.contains("slots are in use")).collect();
    assert_eq!(answers, ["dual-write on device 'disk': 64 pages, 512 KiB", "\"new\""]);

    let lines = "cache design magic\ncache resize 0\ncache of\ncache on\ncache on nowhere 1MiB\ncache admit missing no\n\
                 cache off\ncache resize 1MiB\n";
    let (_, mistakes, output) = shell(bank.path(), lines);
    assert_eq!(output.status.code(), Some(1));
    let expected = [
        "line 1: error: there is no design 'magic'; there are migrate-all,",
        "line 2: error: '0' is not the size of a cache",
        "line 3: error: the forms are:",
        "line 4: error: the cache is on",
        "line 5: error: there is no device 'nowhere'",
        "line 6: error: there is no partition 'missing'",
        "line 8: error: there is no cache; 'cache on' turns one on",
        "error: 7 requests failed",
    ];
    let mut rest = mistakes.lines();
    for expected in expected {
        assert!(rest.any(|line| line.starts_with(expected)), "{expected} in order in {mistakes}");
    }
}
