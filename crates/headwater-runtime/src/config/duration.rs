//! Durations as Java writes them.

use std::collections::BTreeSet;

/// Milliseconds of an ISO 8601 duration in days, hours, minutes and seconds (`P1DT2H3M4.5S`), the
/// form that Java's `Duration.parse` reads, without signs.
pub(super) fn duration_ms(text: &str) -> Option<i64> {
    let text = text.strip_prefix(['P', 'p'])?;
    let (date, time) = match text.split_once(['T', 't']) {
        Some((_, "")) => return None,
        Some((date, time)) => (date, time),
        None => (text, ""),
    };
    if date.is_empty() && time.is_empty() {
        return None;
    }
    let mut total = 0_i64;
    let mut units = BTreeSet::new();
    for (part, allowed) in [(date, "D"), (time, "HMS")] {
        let mut rest = part;
        while !rest.is_empty() {
            let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
            let (number, tail) = rest.split_at(end);
            let mut tail = tail.chars();
            let unit = tail.next()?.to_ascii_uppercase();
            rest = tail.as_str();
            if !allowed.contains(unit) || !units.insert(unit) {
                return None;
            }
            total = total.checked_add(unit_ms(number, unit)?)?;
        }
    }
    Some(total)
}

fn unit_ms(number: &str, unit: char) -> Option<i64> {
    let factor = match unit {
        'D' => 86_400_000,
        'H' => 3_600_000,
        'M' => 60_000,
        _ => return seconds_ms(number),
    };
    digits(number)?.checked_mul(factor)
}

fn seconds_ms(number: &str) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
    digits(fraction)?;
    digits(whole)?.checked_mul(1000)?.checked_add(digits(&thousandths)?)
}

fn digits(text: &str) -> Option<i64> {
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}
