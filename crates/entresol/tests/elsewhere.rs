//! What other programs have a database do that one has open: here their parts are played by threads.

#![allow(clippy::disallowed_methods, reason = "the tests talk to a socket and look into directories")]

use entresol::configuration::Configuration;
use entresol::{
    BackupError, BackupReport, BackupSettings, DatabaseThread, ElsewhereError, Error, OpenError, Opening,
    PartitionSpec, RestoreSource,
};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

const BACKENDS: [&str; 2] = ["automatic", "thread-pool"];
const SOCKET: &str = "entresol.socket";

fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn opening(directory: &Path, driver: &str) -> Opening {
    let text = format!("[buffer]\nsize = \"8 MiB\"\n[log]\nsize = \"4 MiB\"\n[driver]\n{driver}\n");
    Opening::new(directory, Configuration::parse(&text).expect("right"))
}

fn automatic(directory: &Path) -> Opening {
    opening(directory, "")
}

/// An open database with a note and some megabytes beside it.
fn opened(opening: Opening) -> DatabaseThread {
    let thread = DatabaseThread::start(opening).expect("opens");
    let handle = thread.handle();
    let notes = handle.ensure_partition(PartitionSpec::b_tree("notes")).wait().expect("there");
    for number in 0..30_u32 {
        let many = handle.transaction(async move |tx| {
            for key in 0..100 {
                tx.put(notes, &(number * 100 + key).to_be_bytes(), &[7; 1000]).await?;
            }
            Ok::<_, Error>(())
        });
        many.wait().expect("puts");
    }
    handle.put(notes, b"milk", b"two litres").wait().expect("puts");
    thread
}

fn settings(target: &Path, bytes_per_second: Option<u64>) -> BackupSettings {
    BackupSettings { target: target.to_str().expect("plain letters").to_owned(), base: None, bytes_per_second }
}

/// A backup that takes long.
fn slow(target: &Path) -> BackupSettings {
    settings(target, Some(200 << 10))
}

fn back_up(directory: &Path, settings: &BackupSettings) -> Result<Option<BackupReport>, OpenError> {
    automatic(directory).back_up_elsewhere(settings, |_| {})
}

fn milk(backup: &Path) -> Option<Vec<u8>> {
    let directory = scratch();
    let source = RestoreSource { backup: backup.to_str().expect("plain letters").to_owned(), archive: None };
    automatic(directory.path()).restore(&source, |_| {}).expect("restores");
    let store = automatic(directory.path()).open().expect("opens");
    let found = store.run(async |database| {
        let notes = database.partition("notes")?;
        database.transaction(async |tx| tx.get(notes, b"milk").await).await
    });
    found.expect("it can be read")
}

fn patiently(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}");
}

#[test]
fn a_program_has_another_one_back_its_database_up_and_hears_how_far_it_is() {
    for backend in BACKENDS {
        let (home, places) = (scratch(), scratch());
        let opening = opening(home.path(), &format!("backend = \"{backend}\""));
        let thread = opened(opening.clone());
        let mode = home.path().join(SOCKET).metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (full, increment) = (places.path().join("full"), places.path().join("increment"));
        let mut seen = Vec::new();
        let paced = settings(&full, Some(4 << 20));
        let report = opening.back_up_elsewhere(&paced, |progress| seen.push(progress)).expect("backs up");
        let report = report.expect("it is open");
        assert!(report.data_bytes > 3_000_000, "{report:?}");
        assert!(seen.len() > 1 && seen.is_sorted_by_key(|progress| progress.done), "{seen:?}");
        let handle = thread.handle();
        let notes = handle.partition("notes").wait().expect("there");
        handle.put(notes, b"milk", b"one litre").wait().expect("puts");
        let base = Some(paced.target.clone());
        let built_on = BackupSettings { base, ..settings(&increment, None) };
        let less = back_up(home.path(), &built_on).expect("backs up").expect("it is open");
        assert!(less.data_bytes < report.data_bytes / 10, "{less:?}");
        let again = back_up(home.path(), &paced);
        assert!(matches!(again, Err(OpenError::Engine(Error::Backup(BackupError::NotEmpty { .. })))), "{again:?}");
        thread.close().expect("closes");
        assert!(!home.path().join(SOCKET).exists());
        assert!(back_up(home.path(), &built_on).expect("no error").is_none());
        assert_eq!(milk(&full).as_deref(), Some(&b"two litres"[..]), "{backend}");
        assert_eq!(milk(&increment).as_deref(), Some(&b"one litre"[..]), "{backend}");
    }
}

#[test]
fn a_store_takes_a_backup_when_it_runs_something() {
    let (home, places) = (scratch(), scratch());
    opened(automatic(home.path())).close().expect("closes");
    let store = automatic(home.path()).open().expect("opens");
    let (path, target) = (home.path().to_owned(), places.path().join("backup"));
    let (told, hears) = mpsc::channel();
    let asking = std::thread::spawn({
        let target = target.clone();
        move || {
            let report = back_up(&path, &settings(&target, None));
            told.send(()).expect("it is waited for");
            report
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(hears.try_recv().is_err() && !target.exists(), "nothing runs");
    store
        .run(async |database| {
            while hears.try_recv().is_err() {
                database.executor().sleep_ns(1_000_000).await;
            }
            Ok(())
        })
        .expect("runs");
    assert!(asking.join().expect("it does not panic").expect("backs up").is_some());
    assert_eq!(milk(&target).as_deref(), Some(&b"two litres"[..]));
    // One that nothing runs for any more is told so.
    let (path, target) = (home.path().to_owned(), places.path().join("other"));
    let asking = std::thread::spawn(move || back_up(&path, &settings(&target, None)));
    std::thread::sleep(Duration::from_millis(300));
    store.close().expect("closes");
    let refused = asking.join().expect("it does not panic");
    assert!(matches!(refused, Err(OpenError::Engine(Error::Closed))), "{refused:?}");
}

#[test]
fn a_database_that_is_closed_ends_a_backup_after_its_time_of_grace() {
    for (grace, is_whole) in [(Duration::from_millis(100), false), (Duration::from_secs(60), true)] {
        let (home, places) = (scratch(), scratch());
        let thread = opened(automatic(home.path()));
        let (path, target) = (home.path().to_owned(), places.path().join("backup"));
        let begun = target.join("data");
        let asking = std::thread::spawn(move || back_up(&path, &settings(&target, Some(3 << 20))));
        patiently("it does not begin", || begun.exists());
        thread.close_within(grace).expect("closes");
        let result = asking.join().expect("it does not panic");
        match is_whole {
            true => assert!(matches!(result, Ok(Some(_))), "{result:?}"),
            false => assert!(matches!(result, Err(OpenError::Engine(Error::Closed))), "{result:?}"),
        }
        assert_eq!(places.path().join("backup/entresol.backup").exists(), is_whole);
    }
}

#[test]
fn a_store_that_runs_nothing_is_waited_for_ten_seconds() {
    let home = scratch();
    let (path, other) = (home.path().to_owned(), home.path().to_owned());
    let store = automatic(home.path()).open().expect("opens");
    let backup = std::thread::spawn(move || back_up(&path, &settings(&path.join("backup"), None)).map(|_| ()));
    let waits = std::thread::spawn(move || automatic(&other).waits_elsewhere().map(|_| ()));
    for asked in [backup, waits] {
        let refused = asked.join().expect("it does not panic");
        assert!(matches!(refused, Err(OpenError::Elsewhere(ElsewhereError::Idle { .. }))), "{refused:?}");
    }
    store.close().expect("closes");
}

#[test]
fn a_dropped_store_tells_those_who_ask() {
    let (home, places) = (scratch(), scratch());
    opened(automatic(home.path())).close().expect("closes");
    let store = automatic(home.path()).open().expect("opens");
    let (path, target) = (home.path().to_owned(), places.path().join("backup"));
    let begun = target.join("data");
    let asking = std::thread::spawn(move || back_up(&path, &slow(&target)));
    store
        .run(async |database| {
            while !begun.exists() {
                database.executor().sleep_ns(1_000_000).await;
            }
            Ok(())
        })
        .expect("runs");
    drop(store);
    let result = asking.join().expect("it does not panic");
    assert!(matches!(result, Err(OpenError::Engine(Error::Closed))), "{result:?}");
    assert!(!home.path().join(SOCKET).exists() && !places.path().join("backup/entresol.backup").exists());
}

#[test]
fn who_does_not_want_to_be_asked_is_not() {
    let (home, places) = (scratch(), scratch());
    let thread = opened(opening(home.path(), "socket = false"));
    assert!(!home.path().join(SOCKET).exists());
    assert!(back_up(home.path(), &settings(&places.path().join("backup"), None)).expect("no error").is_none());
    thread.close().expect("closes");
}

#[test]
fn a_directory_without_room_for_a_socket_is_opened_all_the_same_and_a_dead_one_is_taken_over() {
    let home = scratch();
    let socket = home.path().join(SOCKET);
    std::fs::create_dir(&socket).expect("creates");
    let thread = opened(automatic(home.path()));
    thread.close().expect("closes");
    assert!(socket.is_dir());
    std::fs::remove_dir(&socket).expect("removes");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("binds"));
    let places = scratch();
    assert!(back_up(home.path(), &settings(places.path(), None)).expect("no error").is_none(), "it is dead");
    let thread = opened(automatic(home.path()));
    assert!(back_up(home.path(), &settings(places.path(), None)).expect("backs up").is_some());
    thread.close().expect("closes");
}

#[test]
fn a_second_opening_is_told_what_can_be_had_of_the_first() {
    let home = scratch();
    let thread = opened(automatic(home.path()));
    let refused = automatic(home.path()).open().map(|_| ()).expect_err("it is open").to_string();
    let path = home.path().display();
    assert!(refused.contains("is open already") && refused.contains(&format!("'entresol backup {path} ")), "{refused}");
    thread.close().expect("closes");
}

/// What is answered to these bytes.
fn answer_to(home: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(home.join(SOCKET)).expect("it listens");
    // It may have answered and gone before it has taken all.
    let _sent = stream.write_all(bytes).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
    let mut answer = Vec::new();
    let _came = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn bytes_of_strangers_and_relative_places_are_refused_in_words() {
    let (home, places) = (scratch(), scratch());
    let thread = opened(automatic(home.path()));
    let claims = |length: u32, version: u8| [&length.to_le_bytes()[..], &[version], &[0xff; 64]].concat();
    for (bytes, words) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "have version"),
        (claims(u32::MAX, 1), "over the limit"),
        (claims(64, 1), "no message"),
        (claims(65, 1), "does not talk"),
        (claims(1, 7), "have version 7"),
    ] {
        let answer = answer_to(home.path(), &bytes);
        assert!(String::from_utf8_lossy(&answer).contains(words), "{words}: {answer:?}");
    }
    assert_eq!(answer_to(home.path(), b""), b"");
    let relative = back_up(home.path(), &settings(Path::new("backup"), None));
    let is_told = matches!(&relative, Err(OpenError::Elsewhere(ElsewhereError::Failed { detail, .. })) if detail.contains("absolute"));
    assert!(is_told, "{relative:?}");
    // It goes on.
    assert!(back_up(home.path(), &settings(places.path(), None)).expect("backs up").is_some());
    // Its closing waits for no one who says nothing.
    let mut silent = UnixStream::connect(home.path().join(SOCKET)).expect("it listens");
    thread.close().expect("closes");
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).expect("it is closed");
    assert_eq!(answer, b"");
}

#[test]
fn a_client_that_goes_takes_its_backup_back_and_too_many_are_turned_away() {
    let (home, places) = (scratch(), scratch());
    let thread = opened(automatic(home.path()));
    let target = places.path().join("backup");
    // What a client sends, as this one hears it.
    let overheard = scratch();
    let listener = std::os::unix::net::UnixListener::bind(overheard.path().join(SOCKET)).expect("binds");
    let (path, asked) = (overheard.path().to_owned(), slow(&target));
    let asking = std::thread::spawn(move || back_up(&path, &asked));
    let (mut heard, _) = listener.accept().expect("it asks");
    let mut head = [0; 5];
    heard.read_exact(&mut head).expect("a head");
    let mut body = vec![0; u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize];
    heard.read_exact(&mut body).expect("a question");
    drop(heard);
    let ended = asking.join().expect("it does not panic");
    assert!(matches!(ended, Err(OpenError::Elsewhere(ElsewhereError::Ended { .. }))), "{ended:?}");

    let connect = || UnixStream::connect(home.path().join(SOCKET)).expect("it listens");
    let mut client = connect();
    client.write_all(&[&head[..], &body].concat()).expect("asks");
    patiently("it does not begin", || target.join("data").exists());
    let occupied = back_up(home.path(), &settings(&target, None));
    assert!(matches!(occupied, Err(OpenError::Engine(Error::Backup(BackupError::InUse { .. })))), "{occupied:?}");
    let mut others: Vec<UnixStream> = (0..15).map(|_| connect()).collect();
    // The sixteen are served, which takes until they are taken up.
    let is_refused = || {
        matches!(
            back_up(home.path(), &settings(&target, None)),
            Err(OpenError::Elsewhere(ElsewhereError::Ended { .. }))
        )
    };
    patiently("none is turned away", is_refused);
    others.clear();
    drop(client);
    let files = |path: &PathBuf| path.read_dir().map(|names| names.count()).unwrap_or(0);
    patiently("it is not taken back", || files(&target) == 0);
    let freed = || back_up(home.path(), &settings(&target, None)).is_ok_and(|report| report.is_some());
    patiently("it is not free", freed);
    assert_eq!(milk(&target).as_deref(), Some(&b"two litres"[..]));
    thread.close().expect("closes");
}

#[test]
fn a_handle_takes_checkpoints_and_backups_and_reads_what_was_some_time_ago() {
    let (home, places) = (scratch(), scratch());
    let text = "[buffer]\nsize = \"8 MiB\"\n[log]\nsize = \"4 MiB\"\n[undo]\nretention = \"10 min\"";
    let opening = Opening::new(home.path(), Configuration::parse(text).expect("right"));
    let thread = opened(opening);
    let handle = thread.handle();
    let notes = handle.partition("notes").wait().expect("there");
    assert_eq!(handle.partitions().wait().expect("lists"), [("notes".to_owned(), notes)]);
    std::thread::sleep(Duration::from_millis(300));
    handle.delete(notes, b"milk").wait().expect("deletes");
    let ago = |age| handle.as_of_age(age, async move |then| then.get(notes, b"milk").await).wait();
    assert_eq!(ago(Duration::from_millis(150)).expect("it is kept").as_deref(), Some(&b"two litres"[..]));
    assert_eq!(ago(Duration::ZERO), Ok(None));
    assert!(ago(Duration::MAX).is_err());
    let taken = handle.figures().wait().expect("counts").checkpoints;
    handle.checkpoint().wait().expect("takes one");
    assert!(handle.figures().wait().expect("counts").checkpoints > taken);
    let (told, hears) = mpsc::channel();
    let settings = settings(&places.path().join("backup"), None);
    let report = handle.backup(settings, move |progress| told.send(progress).expect("it is heard")).wait();
    assert!(report.expect("backs up").data_bytes > 3_000_000 && hears.iter().count() > 0);
    assert_eq!(milk(&places.path().join("backup")), None);
    thread.close().expect("closes");
}

#[test]
fn a_program_has_another_one_tell_what_its_transactions_reference() {
    let home = scratch();
    let thread = opened(automatic(home.path()));
    let (handle, notes) = (thread.handle(), thread.handle().partition("notes").wait().expect("there"));
    // While something is asked, transactions go on.
    let record = |span: Duration, references_max: u64| {
        let path = home.path().to_owned();
        let asking = std::thread::spawn(move || automatic(&path).record_elsewhere(span, references_max));
        while !asking.is_finished() {
            handle.put(notes, b"milk", b"one litre").wait().expect("puts");
        }
        asking.join().expect("it does not panic").expect("records").expect("it is open")
    };
    let whole = record(Duration::from_millis(400), 1 << 20);
    assert!(!whole.is_full && whole.transactions.len() > 5, "{} transactions", whole.transactions.len());
    let [partition] = &whole.partitions[..] else { panic!("one was referenced: {:?}", whole.partitions) };
    assert_eq!((partition.name.as_str(), partition.id), ("notes", notes));
    let is_write = |references: &Vec<entresol::RecordedReference>| references.iter().any(|reference| reference.write);
    assert!(whole.transactions.iter().all(is_write));
    // What memory may take ends it early.
    let began = std::time::Instant::now();
    let part = record(Duration::from_secs(3600), 60);
    assert!(part.is_full && began.elapsed() < Duration::from_secs(600));
    assert!(
        (1..=12).contains(&part.transactions.len()),
        "60 references, of which a transaction counts 4 more: {part:?}"
    );
    // Two at once are one too many, and the observer is gone with who has asked.
    let path = home.path().to_owned();
    let long = std::thread::spawn(move || automatic(&path).record_elsewhere(Duration::from_secs(2), 1 << 20));
    std::thread::sleep(Duration::from_millis(700));
    let second = automatic(home.path()).record_elsewhere(Duration::from_millis(10), 1);
    let refused = second.expect_err("another one is recording").to_string();
    assert!(refused.contains("another observer"), "{refused}");
    assert!(long.join().expect("it does not panic").expect("records").is_some());
    record(Duration::from_millis(50), 1 << 20);
    thread.close().expect("closes");
    let none = automatic(home.path()).record_elsewhere(Duration::from_millis(10), 1);
    assert!(none.expect("no error").is_none(), "it is not open");
}

#[test]
fn a_recording_for_others_does_not_keep_a_database_open() {
    let home = scratch();
    let thread = opened(automatic(home.path()));
    let path = home.path().to_owned();
    let asking = std::thread::spawn(move || automatic(&path).record_elsewhere(Duration::from_secs(3600), 1 << 20));
    std::thread::sleep(Duration::from_millis(700));
    assert!(!asking.is_finished());
    let began = std::time::Instant::now();
    thread.close().expect("closes");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let told = asking.join().expect("it does not panic").expect_err("it had an hour");
    assert!(matches!(told, OpenError::Engine(Error::Closed)), "{told}");
}
