//! Values with units, and moments, as they are typed.

use std::time::Duration;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use legwork::gate::units;

const DAY_MS: u64 = 24 * 3_600_000;

/// A duration; a bare number counts seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    duration(text, 1000)
}

/// A duration; a bare number counts milliseconds.
pub(super) fn milliseconds(text: &str) -> Result<u64, String> {
    let time = duration(text, 1)?;
    Ok(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Whole days; a bare number counts days.
pub(super) fn days(text: &str) -> Result<u64, String> {
    let time = duration(text, DAY_MS)?;
    Ok(time.as_secs() * 1000 / DAY_MS)
}

fn duration(text: &str, bare: u64) -> Result<Duration, String> {
    if let Some(time) = units::duration_ms(text, bare) {
        return Ok(Duration::from_millis(time));
    }
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits && !text.is_empty() {
        // Past the end of time is no limit.
        return Ok(Duration::MAX);
    }
    Err("write a duration, such as 90, 5s, 1m30s or 2h".into())
}

/// A size; a bare number counts bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    units::size_bytes(text).ok_or_else(|| "write a size, such as 4096, 512KiB or 2GiB".into())
}

/// A moment in milliseconds since 1970: so long ago, or a time.
pub(super) fn moment(text: &str) -> Result<i64, String> {
    let has_unit = text.ends_with(|it: char| it.is_ascii_lowercase());
    if has_unit && let Some(ago) = units::duration_ms(text, 1000) {
        let now = Timestamp::now().as_millisecond();
        return Ok(now.saturating_sub(i64::try_from(ago).unwrap_or(i64::MAX)));
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_millisecond());
    }
    let local = text.parse::<DateTime>().ok();
    let local = local.and_then(|time| time.to_zoned(TimeZone::system()).ok());
    let known = local.map(|time| time.timestamp().as_millisecond());
    known.ok_or_else(|| {
        "write how long ago, such as 10m or 2d, or a time, such as 2026-01-31 or \
         2026-01-31T12:00:00Z"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_numbers_count_as_they_always_have() {
        assert_eq!(seconds("2").unwrap(), Duration::from_secs(2));
        assert_eq!(seconds("0.5").unwrap(), Duration::from_millis(500));
        assert_eq!(seconds("99999999999999999999").unwrap(), Duration::MAX);
        assert_eq!(milliseconds("2").unwrap(), 2);
        assert_eq!(milliseconds("2s").unwrap(), 2000);
        assert_eq!((days("2").unwrap(), days("2w").unwrap(), days("36h").unwrap()), (2, 14, 1));
        for wrong in ["", "-1", "soon", "1 apple"] {
            assert!(seconds(wrong).is_err() && milliseconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_moment_is_a_time_or_so_long_ago() {
        assert_eq!(moment("1970-01-01T00:01:00Z").unwrap(), 60_000);
        let hour = Timestamp::now().as_millisecond() - 3_600_000;
        assert!((moment("1h").unwrap() - hour).abs() < 60_000);
        assert!(moment("2026-01-31").is_ok() && moment("2026-01-31T12:00").is_ok());
        for wrong in ["", "yesterday", "5", "31.1.2026"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }
}
