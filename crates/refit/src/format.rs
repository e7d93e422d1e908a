//! Sizes and times as people write and read them.

use std::time::Duration;

use refit_limits::MIN_LIMIT;

const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// `1.5 KiB`; at most four digits.
pub(crate) fn size(bytes: u64) -> String {
    let mut unit = 0;
    let mut scale = 1u64;
    while bytes / scale >= 1024 && unit + 1 < UNITS.len() {
        scale *= 1024;
        unit += 1;
    }
    let whole = bytes / scale;
    let tenths = (bytes % scale) * 10 / scale;
    if whole >= 10 || tenths == 0 {
        format!("{whole} {}", UNITS[unit])
    } else {
        format!("{whole}.{tenths} {}", UNITS[unit])
    }
}

/// `14.2 µs`; three significant digits.
pub(crate) fn nanos(ns: u64) -> String {
    const STEPS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
    let Some((scale, unit)) = STEPS.iter().find(|(scale, _)| ns >= *scale) else {
        return format!("{ns} ns");
    };
    let whole = ns / scale;
    let rest = ns % scale;
    match whole {
        0..10 => format!("{whole}.{:02} {unit}", rest * 100 / scale),
        10..100 => format!("{whole}.{} {unit}", rest * 10 / scale),
        _ => format!("{whole} {unit}"),
    }
}

/// `12 345`: thousands apart by a thin, unbreakable gap that every terminal can show.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// `1 object`, `2 objects`.
pub(crate) fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

/// `yes`, `no`.
pub(crate) fn yes_or_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// Reads `256M`, `256MiB`, `1G`, `4096`: powers of 1024, as memory goes.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; write e.g. 256M or 4G");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let unit = unit.to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit);
    let power = match unit {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return Err(wrong()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << (10 * power)));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// Reads how much memory programs may have: a size, but not one with which none gets on.
pub(crate) fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < MIN_LIMIT {
        return Err(format!("a program needs at least {}", size(MIN_LIMIT)));
    }
    Ok(bytes)
}

/// Reads `1s`, `50ms`, `200us`, `2min`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time; write e.g. 50ms, 1s, 10m or 2h");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let per_unit = match unit {
        "us" | "µs" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return Err(wrong()),
    };
    let micros = number.parse::<u64>().ok().and_then(|n| n.checked_mul(per_unit));
    micros.map(Duration::from_micros).ok_or_else(wrong)
}

/// A number and what is written behind it.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (end > 0).then(|| (&text[..end], text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (10 * 1024 + 700, "10 KiB"),
            (256 << 20, "256 MiB"),
            (u64::MAX, "16383 PiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn times_have_three_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (14_250, "14.2 µs"),
            (132_600, "132 µs"),
            (1_500_000, "1.50 ms"),
            (61_000_000_000, "61.0 s"),
        ] {
            assert_eq!(nanos(ns), text);
        }
    }

    #[test]
    fn counts_are_grouped() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1 000"), (1_234_567, "1 234 567")] {
            assert_eq!(count(n), text);
        }
        assert_eq!(counted(1, "object"), "1 object");
        assert_eq!(counted(0, "object"), "0 objects");
    }

    #[test]
    fn reads_sizes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("1k", 1024),
            ("256M", 256 << 20),
            ("256 MiB", 256 << 20),
            ("2GB", 2 << 30),
            ("16T", 16 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "12X", "0", "99999999999999999999", "16777216T", "1 0"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn programs_need_a_mebibyte() {
        assert_eq!(parse_memory("1M"), Ok(1 << 20));
        let refused = Err("a program needs at least 1 MiB".to_owned());
        assert_eq!((parse_memory("1023K"), parse_memory("1")), (refused.clone(), refused));
        assert!(parse_memory("none").is_err_and(|why| why.contains("is not a size")));
    }

    #[test]
    fn reads_times() {
        for (text, micros) in [
            ("1s", 1_000_000),
            ("50ms", 50_000),
            ("7us", 7),
            ("2min", 120_000_000),
            ("10m", 600_000_000),
            ("1h", 3_600_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        for text in ["", "s", "1", "1d", "-1s", "1.5s", "99999999999999999s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
