//! Time limits of an endpoint's commands.
//!
//! Read from the JSON of a command; too long ones are refused.
//!
//! Source: docs/endpoint.md "Control socket"; docs/fabric-memory.md "Commands".

use serde::{Deserialize, Deserializer, de::Error};

/// Time limit of a command that does not name one.
pub const TIMEOUT_MS: u64 = 30_000;
/// Longest time limit that a command may name: a day.
pub const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// Default for serde.
pub(super) const fn timeout() -> u64 {
    TIMEOUT_MS
}

/// Reads the time limit of a command in milliseconds.
///
/// # Errors
/// Not a number, or above [`TIMEOUT_MS_MAX`].
pub(super) fn timeout_ms<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let ms = u64::deserialize(from)?;
    if ms > TIMEOUT_MS_MAX {
        let text = format!("timeout_ms: expected at most {TIMEOUT_MS_MAX} (a day), found {ms}");
        return Err(D::Error::custom(text));
    }
    Ok(ms)
}

/// Reads an optional time limit of a command.
///
/// # Errors
/// Like [`timeout_ms`].
pub(super) fn some_timeout_ms<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    timeout_ms(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::TIMEOUT_MS_MAX;
    use crate::endpoint::Command;

    /// docs/fabric-memory.md: a time limit beyond the range of a clock is refused; it must not overflow and end the
    /// command at once.
    #[test]
    fn a_time_limit_beyond_a_day_is_refused() {
        let commands = [
            r#"{"cmd":"mem","op":"read","peer":1,"ops":[],"timeout_ms":@}"#,
            r#"{"cmd":"mem","op":"connect","mailbox":"0x10","timeout_ms":@}"#,
            r#"{"cmd":"read","addr":"0x10","len":"8","timeout_ms":@}"#,
            r#"{"cmd":"enumerate","timeout_ms":@}"#,
            r#"{"cmd":"rescan","bdf":"01:00.0","timeout_ms":@}"#,
            r#"{"cmd":"reset","bdf":"01:00.0","timeout_ms":@}"#,
            r#"{"cmd":"cache_id","bdf":"01:00.0","id":1,"timeout_ms":@}"#,
            r#"{"cmd":"gae","opcode":"0x5400","timeout_ms":@}"#,
            r#"{"cmd":"ring","base":"0x100","timeout_ms":@}"#,
            r#"{"cmd":"turn_off","timeout_ms":@}"#,
            r#"{"cmd":"cdat","timeout_ms":@}"#,
            r#"{"cmd":"cache_flush","timeout_ms":@}"#,
            r#"{"cmd":"ln_read","addr":"0x10","timeout_ms":@}"#,
        ];
        for text in commands {
            let read = |ms: u64| {
                serde_json::from_str::<Command>(&text.replace('@', &ms.to_string()))
                    .map_err(|error| error.to_string())
            };
            let command = read(TIMEOUT_MS_MAX).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(command.timeout_ms() >= TIMEOUT_MS_MAX, "{text}");
            for ms in [TIMEOUT_MS_MAX + 1, 1_000_000_000_000, u64::MAX] {
                let error = read(ms).unwrap_err();
                assert!(error.contains("expected at most 86400000 (a day)"), "{text}: {error}");
            }
        }
    }

    /// docs/endpoint.md: a command in slices has time for all its slices.
    #[test]
    fn a_long_store_has_time_for_its_slices() {
        let read = |text: &str| serde_json::from_str::<Command>(text).unwrap().timeout_ms();
        for cmd in ["store", "peek"] {
            let long = format!(r#"{{"cmd":"{cmd}","addr":0,"len":"1GiB","seed":1}}"#);
            assert_eq!(read(&long), 30_000 + 16_384 * 16);
            let short = format!(r#"{{"cmd":"{cmd}","addr":0,"data":"0102"}}"#);
            assert_eq!(read(&short), 30_000);
        }
    }
}
