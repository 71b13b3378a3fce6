//! What settings may be: what would be right is in the error.

use crate::instance::HostInfo;

#[expect(clippy::unnecessary_wraps, reason = "a check like the others")]
pub(super) fn any<T>(_: &T) -> Result<(), &'static str> {
    Ok(())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "all checks have one signature")]
pub(super) fn positive(value: &u64) -> Result<(), &'static str> {
    if *value > 0 { Ok(()) } else { Err("at least 1") }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "all checks have one signature")]
pub(super) fn one_at_least(value: &u32) -> Result<(), &'static str> {
    if *value > 0 { Ok(()) } else { Err("at least 1") }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "all checks have one signature")]
pub(super) fn a_minute_at_least(value: &u64) -> Result<(), &'static str> {
    if *value >= 60_000 { Ok(()) } else { Err("at least 60000") }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "all checks have one signature")]
pub(super) fn at_least_one(value: &usize) -> Result<(), &'static str> {
    if *value > 0 { Ok(()) } else { Err("at least 1") }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    clippy::ref_option,
    reason = "all checks have one signature"
)]
pub(super) fn check_replication_factor(value: &Option<i16>) -> Result<(), &'static str> {
    if value.is_none_or(|copies| copies > 0) { Ok(()) } else { Err("at least 1, or -1") }
}

/// The rule of topic names, with room for the rest of an internal topic's name.
pub(super) fn check_application_id(id: &String) -> Result<(), &'static str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !id.is_empty() && id.len() <= 200 && id.chars().all(legal) && id != "." && id != ".." {
        Ok(())
    } else {
        Err("1 to 200 letters, digits, '.', '_' or '-', because topic names begin with it")
    }
}

#[expect(clippy::ref_option, reason = "all checks have one signature")]
pub(super) fn check_host_port(value: &Option<String>) -> Result<(), &'static str> {
    match value.as_ref().map(|text| text.parse::<HostInfo>()) {
        None | Some(Ok(_)) => Ok(()),
        Some(Err(_)) => Err("host:port, with a port from 1 to 65535"),
    }
}
