//! Numbers as people write and read them: sizes, durations, shares, thousands separators.

use std::str::FromStr;
use thiserror::Error;

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    /// The text is no size.
    #[error(
        "'{0}' is not a size; write a number with B, KiB, MiB, GiB, TiB or PiB (or kB, MB, GB, TB, PB), such as \"64 KiB\""
    )]
    Size(String),
    /// The text counts pages where it is not known how long one is.
    #[error("'{0}' counts pages, whose size is not known here; write a number with B, KiB, MiB, GiB, TiB or PiB")]
    Pages(String),
    /// The text is no duration.
    #[error("'{0}' is not a duration; write a number with ns, us, ms, s, min or h, such as \"1.4 ms\"")]
    Duration(String),
    /// The text is no share.
    #[error("'{0}' is not a share; write a percentage from 0 % to 100 %, such as \"50 %\"")]
    Share(String),
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_' || c == ',')).unwrap_or(text.len());
    let digits: String = text[..end].chars().filter(|c| *c != '_' && *c != ',').collect();
    let number: f64 = digits.parse().ok()?;
    Some((number, text[end..].trim()))
}

/// Parses a size such as `"1 GiB"`, `"4096"` or `"0.5 MiB"` into bytes.
///
/// `MiB` is 1,048,576 bytes, `MB` is 1,000,000; and so on.
///
/// # Errors
/// [`UnitError::Size`] if the text is not a number with a known unit, is not whole bytes, or does not fit;
/// [`UnitError::Pages`] if it counts pages.
///
/// ```
/// use entresol_base::units::{format_size, parse_size};
///
/// assert_eq!(parse_size("16 MB"), Ok(16_000_000));
/// assert_eq!(parse_size("16 MiB"), Ok(16 << 20));
///
/// assert_eq!(parse_size("0.5 MiB"), Ok(512 << 10));
/// assert_eq!(format_size(512 << 10), "512 KiB");
/// assert!(parse_size("half a MiB").is_err());
/// ```
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    match text.parse()? {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Pages(_) => Err(UnitError::Pages(text.to_owned())),
    }
}

/// A size as people write it: in bytes with a unit, or in pages.
///
/// ```
/// use entresol_base::units::Size;
///
/// let size: Size = "1,000 pages".parse()?;
/// assert_eq!((size, size.bytes(8192)), (Size::Pages(1_000), Some(8_192_000)));
/// # Ok::<(), entresol_base::units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// This number of bytes.
    Bytes(u64),
    /// This number of pages, of a size that is said elsewhere.
    Pages(u64),
}

impl Size {
    /// How many bytes that is with pages of `page_size` bytes; nothing if the number does not fit.
    pub fn bytes(self, page_size: u64) -> Option<u64> {
        match self {
            Size::Bytes(bytes) => Some(bytes),
            Size::Pages(pages) => pages.checked_mul(page_size),
        }
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Size, UnitError> {
        match split(text) {
            Some((number, "page" | "pages")) if number.fract() == 0.0 && number <= 9e15 => {
                Ok(Size::Pages(number as u64))
            }
            _ => bytes(text).map(Size::Bytes),
        }
    }
}

fn bytes(text: &str) -> Result<u64, UnitError> {
    let fail = || UnitError::Size(text.to_owned());
    let (number, unit) = split(text).ok_or_else(fail)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kib" | "k" => 1024.0,
        "mib" | "m" => 1024.0 * 1024.0,
        "gib" | "g" => 1024.0 * 1024.0 * 1024.0,
        "tib" | "t" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "pib" | "p" => 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "pb" => 1e15,
        _ => return Err(fail()),
    };
    let bytes = number * factor;
    if bytes.fract() != 0.0 || bytes > 9e18 {
        return Err(fail());
    }
    Ok(bytes as u64)
}

/// Parses a duration such as `"50 us"` or `"1.4 ms"` into nanoseconds.
///
/// # Errors
/// [`UnitError::Duration`] if the text is not a number with a known unit, or does not fit.
///
/// ```
/// use entresol_base::units::{format_duration_ns, parse_duration_ns};
///
/// assert_eq!(parse_duration_ns("1.4 ms"), Ok(1_400_000));
/// assert_eq!(format_duration_ns(1_400_000.0), "1.40 ms");
/// ```
pub fn parse_duration_ns(text: &str) -> Result<u64, UnitError> {
    let fail = || UnitError::Duration(text.to_owned());
    let (number, unit) = split(text).ok_or_else(fail)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3_600e9,
        _ => return Err(fail()),
    };
    let ns = (number * factor).round();
    if ns > 9e18 { Err(fail()) } else { Ok(ns as u64) }
}

/// Parses a share such as `"50 %"` into a number from 0 to 1.
///
/// # Errors
/// [`UnitError::Share`] if the text is not a percentage from 0 % to 100 %.
pub fn parse_share(text: &str) -> Result<f64, UnitError> {
    match split(text) {
        Some((number, "%")) if number <= 100.0 => Ok(number / 100.0),
        _ => Err(UnitError::Share(text.to_owned())),
    }
}

/// A whole number with thousands separators: `1234567` is `"1,234,567"`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number with `decimals` places and thousands separators in its whole part.
pub fn grouped_decimal(number: f64, decimals: usize) -> String {
    let text = format!("{:.*}", decimals, number.abs());
    let (whole, rest) = match text.find('.') {
        Some(dot) => text.split_at(dot),
        None => (text.as_str(), ""),
    };
    // What rounds to zero has no sign.
    let sign = if number < 0.0 && text.contains(|digit| matches!(digit, '1'..='9')) { "-" } else { "" };
    let whole = whole.parse::<u64>().map_or_else(|_| whole.to_owned(), grouped);
    format!("{sign}{whole}{rest}")
}

/// A size with the largest binary unit that keeps it at one or more: `65536` is `"64 KiB"`.
pub fn format_size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 { format!("{value:.0} {}", units[unit]) } else { format!("{value:.1} {}", units[unit]) }
}

/// A duration with a unit that suits it: `1_400_000` ns is `"1.40 ms"`.
pub fn format_duration_ns(ns: f64) -> String {
    match ns.abs() {
        n if n < 1e3 => format!("{} ns", grouped_decimal(ns, 0)),
        n if n < 1e6 => format!("{:.2} us", ns / 1e3),
        n if n < 1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{} s", grouped_decimal(ns / 1e9, 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse() {
        assert_eq!(parse_size("64 KiB"), Ok(65_536));
        assert_eq!(parse_size("0.5 MiB"), Ok(524_288));
        assert_eq!(parse_size("4096"), Ok(4096));
        for (text, bytes) in [
            ("16 MB", 16_000_000),
            ("16 MiB", 16 << 20),
            ("1.5 GB", 1_500_000_000),
            ("2 TiB", 2 << 40),
            ("1 PiB", 1 << 50),
            ("600 PB", 600_000_000_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_duration_ns("1.4 ms"), Ok(1_400_000));
        assert_eq!(parse_share("50%"), Ok(0.5));
        // What a message calls a size is one.
        for bytes in [0, 1, 1 << 20, 5 << 40, 1024 << 50] {
            assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
        for bad in ["", "GiB", "-1 KiB", "3 parsecs", "0.3 B"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        for (text, pages) in [("1,000 pages", 1_000), ("1 page", 1), ("64pages", 64)] {
            assert_eq!(text.parse(), Ok(Size::Pages(pages)), "{text}");
            assert_eq!(parse_size(text), Err(UnitError::Pages(text.to_owned())));
        }
        for bad in ["pages", "1.5 pages", "-3 pages", "4 KiB pages", "1e30 pages", "99999999999999999999 pages"] {
            assert_eq!(bad.parse::<Size>(), Err(UnitError::Size(bad.to_owned())));
        }
        assert_eq!(Size::Pages(u64::MAX / 2).bytes(8192), None);
        assert!(parse_duration_ns("5").is_err());
        assert!(parse_share("120 %").is_err());
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped_decimal(-12_345.678, 1), "-12,345.7");
        assert_eq!(format_size(65_536), "64 KiB");
        assert_eq!(format_duration_ns(1_400_000.0), "1.40 ms");
        for (ns, text) in [(-0.0, "0 ns"), (-0.4, "0 ns"), (-1_400_000.0, "-1.40 ms"), (-3e9, "-3.00 s")] {
            assert_eq!(format_duration_ns(ns), text);
        }
        assert_eq!([-0.0, -0.04].map(|number| grouped_decimal(number, 1)), ["0.0", "0.0"]);
    }
}
