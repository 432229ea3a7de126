//! Durations and sizes as people write them (`5s`, `1h30m`, `2GiB`) and read them.

/// Units of time with their milliseconds, the longest first.
const TIMES: [(&str, u64); 6] = [
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Units of size with their bytes, the biggest first.
const SIZES: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Other spellings of sizes: all of them mean the binary unit, as those of `ulimit` and `du` do.
const SIZE_SPELLINGS: [(&str, &str); 8] = [
    ("t", "TiB"),
    ("tb", "TiB"),
    ("g", "GiB"),
    ("gb", "GiB"),
    ("m", "MiB"),
    ("mb", "MiB"),
    ("k", "KiB"),
    ("kb", "KiB"),
];

/// Other spellings of times.
const TIME_SPELLINGS: [(&str, &str); 4] = [("sec", "s"), ("min", "m"), ("day", "d"), ("days", "d")];

/// Reads a duration in milliseconds: `250ms`, `5s`, `1h30m`, `1.5s`. A number without a unit counts
/// in `bare`, as the setting or option always has.
pub fn duration_ms(text: &str, bare: u64) -> Option<u64> {
    let unit = |name: &str| {
        let name = spelled(name, &TIME_SPELLINGS);
        TIMES.iter().find(|(unit, _)| *unit == name).map(|(_, size)| *size)
    };
    total(text, bare, unit)
}

/// Reads a size in bytes: `512KiB`, `2GiB`, `1.5G`. A number without a unit counts in bytes.
pub fn size_bytes(text: &str) -> Option<u64> {
    let unit = |name: &str| {
        let lower = name.to_ascii_lowercase();
        let name = spelled(&lower, &SIZE_SPELLINGS);
        SIZES.iter().find(|(unit, _)| unit.eq_ignore_ascii_case(name)).map(|(_, size)| *size)
    };
    total(text, 1, unit)
}

fn spelled<'n>(name: &'n str, others: &[(&str, &'n str)]) -> &'n str {
    others.iter().find(|(other, _)| *other == name).map_or(name, |(_, usual)| usual)
}

/// Adds up numbers with their units.
fn total(text: &str, bare: u64, unit: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let mut rest = text.trim();
    let mut sum = 0_u64;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let behind = behind.trim_start();
        let letters = behind.find(|it: char| !it.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (name, next) = behind.split_at(letters);
        let size = match name {
            // Only alone: in `1h30` nobody can tell what the 30 counts.
            "" if parts == 0 && next.is_empty() => bare,
            _ => unit(name)?,
        };
        sum = sum.checked_add(scaled(number, size)?)?;
        (rest, parts) = (next.trim_start(), parts + 1);
    }
    (parts > 0).then_some(sum)
}

/// A decimal number times a unit, without the errors of floating point.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut sum = whole.checked_mul(unit)?;
    if !fraction.is_empty() {
        let digits = fraction.get(..fraction.len().min(9))?;
        let value: u128 = digits.parse().ok()?;
        let scale = 10_u128.checked_pow(u32::try_from(digits.len()).ok()?)?;
        sum = sum.checked_add(u64::try_from(value * u128::from(unit) / scale).ok()?)?;
    }
    Some(sum)
}

/// A duration as people read it: `0.3s`, `42s`, `10m 0s`, `2h 5m`, `3d 4h`.
pub fn shown_ms(duration_ms: u64) -> String {
    let seconds = duration_ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match duration_ms {
        0..10_000 => format!("{seconds}.{}s", duration_ms % 1000 / 100),
        10_000..60_000 => format!("{seconds}s"),
        60_000..3_600_000 => format!("{minutes}m {}s", seconds % 60),
        3_600_000..86_400_000 => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

/// A size as people read it: `12 B`, `575 KiB`, `1.5 GiB`.
pub fn shown_bytes(bytes: u64) -> String {
    let known = SIZES.iter().find(|(_, size)| bytes >= *size);
    let (name, size) = known.copied().unwrap_or(("B", 1));
    let (whole, tenth) = (bytes / size, bytes % size * 10 / size);
    if tenth == 0 || whole >= 10 {
        format!("{whole} {name}")
    } else {
        format!("{whole}.{tenth} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_units_and_bare_numbers_as_before() {
        for (text, expected) in [
            ("5s", 5_000),
            ("250ms", 250),
            ("1m", 60_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1.5s", 1_500),
            (".5s", 500),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
            ("7", 7_000),
            ("0", 0),
            ("0.25", 250),
        ] {
            assert_eq!(duration_ms(text, 1000), Some(expected), "{text}");
        }
        assert_eq!(duration_ms("7", 1), Some(7), "the same text of a key that counts milliseconds");
        for text in ["", "s", "5x", "1h30", "-5s", "5 5", ".", "99999999999999999999", "1e9"] {
            assert_eq!(duration_ms(text, 1000), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_with_units_and_bare_numbers_are_bytes() {
        for (text, expected) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("512KiB", 512 << 10),
            ("2GiB", 2 << 30),
            ("2 gib", 2 << 30),
            ("1.5G", 3 << 29),
            ("10MB", 10 << 20),
            ("4k", 4096),
            ("3B", 3),
        ] {
            assert_eq!(size_bytes(text), Some(expected), "{text}");
        }
        for text in ["", "GiB", "5 apples", "-1", "20000000TiB"] {
            assert_eq!(size_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_short() {
        for (ms, expected) in [
            (0, "0.0s"),
            (340, "0.3s"),
            (9_999, "9.9s"),
            (42_000, "42s"),
            (600_000, "10m 0s"),
            (7_500_000, "2h 5m"),
            (273_600_000, "3d 4h"),
        ] {
            assert_eq!(shown_ms(ms), expected);
        }
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (575 << 10, "575 KiB"),
            (10 << 30, "10 GiB"),
        ] {
            assert_eq!(shown_bytes(bytes), expected);
        }
    }
}
