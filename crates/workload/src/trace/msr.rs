//! Import of block traces of Microsoft Research Cambridge (Narayanan, Donnelly and Rowstron, FAST 2008; SNIA's IOTTA
//! repository), comma-separated text:
//!
//! ```text
//! Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
//! 128166372003061629,usr,0,Read,7014609920,24576,41286
//! ```
//!
//! The timestamp is in units of 100 ns since 1601, offset and size are in bytes. Each request becomes a transaction of the
//! type `read` or `write` that references the pages it touches; each disk becomes a partition of pages, `HOSTNAME-DISK`,
//! without locks. A type's arrival rate is what the timestamps say. Such traces were taken below a buffer, so they are to be
//! replayed with a main-memory buffer as small as can be; what is above it has had its hits already.

use super::error::LineError;
use super::{Partition, Place, Problem, Reference, Trace, TraceError, Type};
use engine::catalog::Locking;

/// The fields of a line.
const FIELDS: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";
/// The longest request in bytes: longer ones are damage.
const SIZE_MAX: u64 = 16 << 20;
/// Pages are numbered with 32 bits; a request that begins below half of that also ends within.
const PAGE_BITS: u32 = 31;
/// Units of a timestamp in a second.
const TICKS_PER_S: f64 = 1e7;

/// One line.
struct Request<'a> {
    timestamp: u64,
    host: &'a str,
    disk: u64,
    write: bool,
    offset: u64,
    size: u64,
}

/// A disk and its requests' greatest page so far.
struct Disk {
    host: String,
    number: u64,
    last_page: u64,
}

/// Reads a block trace; `page_size` in bytes says what a page is.
///
/// # Errors
/// [`TraceError`] with the line; [`Problem::NoRequests`] if there is none but a header.
///
/// # Panics
/// If `page_size` is below 512 or above 1 MiB.
///
/// ```
/// use entresol_workload::trace::msr::import;
///
/// let lines = "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
///              128166372016382155,usr,0,Write,2517696512,4096,703154\n";
/// let trace = import("usr_0.csv", lines.as_bytes(), 8192)?;
/// let writes = trace.references().iter().filter(|reference| reference.write).count();
/// assert_eq!((trace.len(), trace.references().len(), writes), (2, 5, 1), "the read touches four pages");
/// # Ok::<(), entresol_workload::trace::TraceError>(())
/// ```
pub fn import(file: &str, bytes: &[u8], page_size: u64) -> Result<Trace, TraceError> {
    assert!((512..=1 << 20).contains(&page_size), "a page of {page_size} bytes");
    let mut disks: Vec<Disk> = Vec::new();
    // First what is referenced, then, when the disks' sizes are known, the trace.
    let mut requests: Vec<(u16, bool, u64, u32)> = Vec::new();
    let (mut first, mut last) = (u64::MAX, 0);
    let mut number = 0;
    for line in super::without_mark(bytes).split(|byte| *byte == b'\n') {
        number += 1;
        let fail = |(problem, allowed): LineError| TraceError::new(file, Place::Line(number), problem, allowed);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || (number == 1 && line.starts_with(b"Timestamp,")) {
            continue;
        }
        let request = request(line, page_size).map_err(fail)?;
        let disk = disk_of(&mut disks, &request).map_err(fail)?;
        let page = request.offset / page_size;
        let end = (request.offset + request.size.max(1)).div_ceil(page_size);
        disks[usize::from(disk)].last_page = disks[usize::from(disk)].last_page.max(end - 1);
        requests.push((disk, request.write, page, (end - page) as u32));
        first = first.min(request.timestamp);
        last = last.max(request.timestamp);
    }
    let seconds = last.saturating_sub(first) as f64 / TICKS_PER_S;
    let place = |problem| TraceError::new(file, Place::Line(number.max(1)), problem, "");
    if requests.is_empty() {
        return Err(TraceError::new(file, Place::Line(number), Problem::NoRequests, FIELDS));
    }
    assemble(&disks, &requests, seconds).map_err(place)
}

fn assemble(disks: &[Disk], requests: &[(u16, bool, u64, u32)], seconds: f64) -> Result<Trace, Problem> {
    let mut trace = Trace::new();
    for Disk { host, number, last_page } in disks {
        let name = format!("{host}-{number}");
        trace.add_partition(Partition { name, objects: last_page + 1, blocking_factor: 1, locks: Locking::None })?;
    }
    for (name, write) in [("read", false), ("write", true)] {
        let count = requests.iter().filter(|request| request.1 == write).count();
        let rate = count as f64 / seconds;
        let rate_per_s = Some(rate).filter(|rate| rate.is_finite() && *rate > 0.0);
        trace.add_type(Type { name: name.to_owned(), rate_per_s })?;
    }
    for (partition, write, page, pages) in requests {
        trace.begin(u16::from(*write));
        for object in *page..*page + u64::from(*pages) {
            trace.refer(Reference { partition: *partition, write: *write, object })?;
        }
    }
    Ok(trace)
}

fn disk_of(disks: &mut Vec<Disk>, request: &Request<'_>) -> Result<u16, LineError> {
    if let Some(known) = disks.iter().position(|disk| disk.number == request.disk && disk.host == request.host) {
        return Ok(known as u16);
    }
    let name = format!("{}-{}", request.host, request.disk);
    if !crate::is_name(&name) {
        return Err((Problem::BadName(name), ""));
    }
    if disks.len() == super::TABLE_MAX {
        return Err((Problem::TooMany("disks"), ""));
    }
    disks.push(Disk { host: request.host.to_owned(), number: request.disk, last_page: 0 });
    Ok((disks.len() - 1) as u16)
}

fn request(line: &[u8], page_size: u64) -> Result<Request<'_>, LineError> {
    let text = std::str::from_utf8(line).map_err(|_| {
        let found = String::from_utf8_lossy(line).chars().take(40).collect();
        (Problem::WrongField { what: "text in UTF-8", found }, FIELDS)
    })?;
    let fields: Vec<&str> = text.split(',').collect();
    let &[timestamp, host, disk, kind, offset, size, response] = &fields[..] else {
        return Err((Problem::Fields(format!("the line has {} of 7 fields", fields.len())), FIELDS));
    };
    let number = |text: &str, what: &'static str| {
        let wrong = || (Problem::WrongField { what, found: text.chars().take(40).collect() }, "a whole number");
        text.trim().parse::<u64>().map_err(|_| wrong())
    };
    number(response, "response time")?;
    let write = match kind.trim().to_ascii_lowercase().as_str() {
        "read" => false,
        "write" => true,
        _ => return Err((Problem::WrongField { what: "type of a request", found: kind.to_owned() }, "Read, Write")),
    };
    let request = Request {
        timestamp: number(timestamp, "timestamp")?,
        host: host.trim(),
        disk: number(disk, "number of a disk")?,
        write,
        offset: number(offset, "offset")?,
        size: number(size, "size")?,
    };
    for (what, found, limit) in [("offset", request.offset, page_size << PAGE_BITS), ("size", request.size, SIZE_MAX)] {
        if found > limit {
            return Err((Problem::OutOfRange { what, found, allowed: format!("0 to {limit} bytes") }, ""));
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
        128166372003061629,usr,0,Read,7014609920,24576,41286\r\n\
        128166372016382155,usr,1,Write,8192,4097,1963\n\
        128166372026382245,usr,0,Read,7014609921,0,1963\n";

    #[test]
    fn requests_become_transactions_on_their_pages() {
        let trace = import("usr.csv", LINES.as_bytes(), 4096).unwrap();
        let names: Vec<&str> = trace.partitions().iter().map(|partition| partition.name.as_str()).collect();
        assert_eq!(names, ["usr-0", "usr-1"]);
        // 24,576 bytes from the middle of a page on touch seven pages.
        assert_eq!(trace.partitions()[0].objects, 7_014_609_920 / 4096 + 7);
        let pages = |position: usize| {
            let transaction = trace.transaction(position);
            let pages = transaction.references.iter().map(|reference| (reference.object, reference.write));
            (transaction.kind, pages.collect::<Vec<_>>())
        };
        assert_eq!(pages(0).1.len(), 7);
        assert_eq!(pages(1), (1, vec![(2, true), (3, true)]));
        assert_eq!(pages(2), (0, vec![(7_014_609_920 / 4096, false)]));
        let rate = trace.types()[0].rate_per_s.unwrap();
        assert!((rate - 2.0 / 2.332).abs() < 1e-3, "{rate}");
    }

    #[test]
    fn errors_name_the_line() {
        let cases = [
            ("usr,0,Read", "usr,0,Erase", 2, "allowed: Read, Write"),
            ("7014609920", "-1", 2, "'-1' is no offset"),
            ("7014609920", "99999999999999999", 2, "0 to"),
            ("usr,1", "u s r,1", 3, "a-z"),
            (",1963\n128", "\n128", 3, "6 of 7 fields"),
            ("24576", "", 2, "'' is no size"),
        ];
        for (from, to, line, what) in cases {
            assert!(LINES.contains(from));
            let error = import("usr.csv", LINES.replacen(from, to, 1).as_bytes(), 4096).expect_err(to);
            assert_eq!(error.place, Place::Line(line), "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
        assert!(import("usr.csv", b"\xff\xfe", 4096).is_err());
        for nothing in ["", "\n", "\u{feff}", "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n"] {
            let error = import("usr.csv", nothing.as_bytes(), 4096).unwrap_err();
            assert_eq!(error.problem, Problem::NoRequests, "{error}");
        }
    }
}
