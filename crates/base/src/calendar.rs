//! Times by the calendar, in Coordinated Universal Time.

use crate::time::SECOND_NS;

const DAY_S: u64 = 86_400;

/// A time as people write it, such as `2026-11-26 03:14:07.123 UTC`, to the millisecond that has begun.
///
/// ```
/// use entresol_base::calendar::format_unix_ns;
///
/// assert_eq!(format_unix_ns(1_795_662_847_123_900_000), "2026-11-26 03:14:07.123 UTC");
/// ```
pub fn format_unix_ns(unix_ns: u64) -> String {
    let seconds = unix_ns / SECOND_NS;
    let (year, month, day) = date_of(seconds / DAY_S);
    let of_day = seconds % DAY_S;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let ms = unix_ns % SECOND_NS / 1_000_000;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03} UTC")
}

/// The time that a text names, in nanoseconds since the beginning of 1970 UTC: a date, `T` or a space, the time of day with or
/// without seconds and a part of one, and the zone: ` UTC`, `Z`, or the hours and minutes that its clocks are ahead, such as `+01:00`. Without
/// a zone it is UTC. Nothing if the text is no such time.
///
/// ```
/// use entresol_base::calendar::parse_unix_ns;
///
/// let noon = parse_unix_ns("2026-11-26T12:00:00Z");
/// assert_eq!(noon, Some(1_795_694_400_000_000_000));
/// assert_eq!([parse_unix_ns("2026-11-26 12:00"), parse_unix_ns("2026-11-26 13:00:00.0+01:00")], [noon, noon]);
/// assert_eq!(parse_unix_ns("2026-02-30 12:00"), None);
/// ```
pub fn parse_unix_ns(text: &str) -> Option<u64> {
    let (date, rest) = text.trim().split_once(['T', ' '])?;
    let mut parts = date.split('-');
    let (year, month, day) = (number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let days = days_to(year, month, day).filter(|_| parts.next().is_none())?;
    let (clock, ahead_s) = zone(rest.trim_end())?;
    let (clock, part) = clock.split_once('.').map_or((clock, None), |(clock, part)| (clock, Some(part)));
    let mut parts = clock.split(':');
    let (hour, minute) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let second = parts.next().map_or(Some(0), |second| number(second, 2))?;
    if hour > 23 || minute > 59 || second > 59 || parts.next().is_some() {
        return None;
    }
    let seconds = i64::try_from(days * DAY_S + hour * 3600 + minute * 60 + second).ok()? - ahead_s;
    let part_ns = part.map_or(Some(0), fraction_ns)?;
    u64::try_from(seconds).ok()?.checked_mul(SECOND_NS)?.checked_add(part_ns)
}

/// The time of day without its zone, and how many seconds that is ahead of UTC.
fn zone(text: &str) -> Option<(&str, i64)> {
    for suffix in ["UTC", "Z"] {
        if let Some(clock) = text.strip_suffix(suffix) {
            return Some((clock.trim_end(), 0));
        }
    }
    let Some(at) = text.rfind(['+', '-']) else { return Some((text, 0)) };
    let (hours, minutes) = text[at + 1..].split_once(':')?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    let ahead = i64::try_from(hours * 3600 + minutes * 60).ok().filter(|_| hours < 24 && minutes < 60)?;
    Some((text[..at].trim_end(), if text.as_bytes()[at] == b'+' { ahead } else { -ahead }))
}

/// A number of this number of digits.
fn number(text: &str, digits: usize) -> Option<u64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// The part of a second behind the point, in nanoseconds.
fn fraction_ns(text: &str) -> Option<u64> {
    let digits = text.len();
    let scale = 10_u64.pow(9_u32.checked_sub(u32::try_from(digits).ok()?)?);
    Some(number(text, digits).filter(|_| digits > 0)? * scale)
}

/// The date of a day, counted from the first of January 1970 (H. Hinnant, chrono-compatible low-level date algorithms, 2013).
fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// The day of a date, if there is such a date from 1970 on.
fn days_to(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year < 1970 {
        return None;
    }
    let shifted_year = year - u64::from(month <= 2);
    let (era, of_era) = (shifted_year / 400, shifted_year % 400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let days = days.checked_sub(719_468)?;
    (date_of(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "2026-11-26",
            "2026-11-26 ",
            "2026-13-01 00:00",
            "2025-02-29 00:00",
            "1969-12-31 23:59",
            "2026-11-26 24:00",
            "2026-11-26 12:60",
            "2026-11-26 12:00:00.",
            "2026-11-26 12:00:00.1234567890",
            "2026-11-26 12:00+1",
            "26-11-26 12:00",
            "2026-11-26 12:00:00:00",
            "2026-11-26-01 12:00",
            "1970-01-01 00:00+00:01",
        ] {
            assert_eq!(parse_unix_ns(text), None, "{text}");
        }
        assert_eq!(parse_unix_ns("2024-02-29T23:59:59.5-00:30"), parse_unix_ns("2024-03-01 00:29:59.500 UTC"));
    }

    #[test]
    fn a_time_is_read_as_it_was_written() {
        let mut random = Random::stream(1, "times");
        for _ in 0..20_000 {
            let ns = random.below(18_000_000_000_000) * 1_000_000;
            let text = format_unix_ns(ns);
            assert_eq!(parse_unix_ns(&text), Some(ns), "{text}");
            // Whatever becomes of one of its characters, it is read or refused.
            let mut bytes = text.into_bytes();
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(128) as u8;
            let _read_or_refused = parse_unix_ns(std::str::from_utf8(&bytes).expect("ASCII"));
        }
    }
}
