//! The names of workloads, and what stands behind each.

/// The input topics of a workload by the kit's names; none: it makes its own.
pub(super) fn inputs_of(workload: &str) -> Vec<&'static str> {
    match workload.split('.').next() {
        Some("W7") => vec!["s100k", "t100k"],
        Some("W8") => vec!["left", "right"],
        Some("W12") => vec!["fkl", "fkr"],
        _ => input_of(workload).into_iter().collect(),
    }
}

/// The one input topic of a workload that joins none.
fn input_of(workload: &str) -> Option<&'static str> {
    let (base, variant) = workload.split_once('.').unwrap_or((workload, ""));
    match (base, variant) {
        ("E" | "F1" | "F2" | "F3", _) => None,
        (_, variant) if variant.contains("long") => Some("x10k"),
        (_, variant) if variant.contains("1m") => Some("u1m"),
        (_, variant) if variant.contains("zipf") => Some("z1m"),
        ("PUT" | "R1" | "R2", _) => Some("u1m"),
        ("W3", variant) if variant.contains("nocache") => Some("m10k"),
        ("W5" | "W9" | "W10", _) => Some("m10k"),
        ("W6" | "W11", _) => Some("w1m"),
        _ => Some("u10k"),
    }
}

/// The workload and the options of the program under test; `None` for workloads that need the kit.
pub(super) fn program_of(workload: &str) -> Option<(&str, Vec<&'static str>)> {
    let mut parts = workload.split('.');
    let base = parts.next()?;
    let numbered = base.strip_prefix('W').and_then(|number| number.parse().ok());
    if !matches!(base, "B1" | "PUT") && !numbered.is_some_and(|number| (1..=12).contains(&number)) {
        return None;
    }
    let mut options = Vec::new();
    if base == "W10" {
        options.extend(["--guarantee", "exactly_once_v2", "--commit-ms", "100"]);
    }
    for variant in parts {
        match variant {
            "cache" | "long" | "1m" => {}
            "nocache" => options.extend(["--cache-bytes", "0"]),
            "2t" => options.extend(["--threads", "2"]),
            _ => return None,
        }
    }
    Some((base, options))
}

#[cfg(test)]
mod tests {
    use super::{input_of, inputs_of, program_of};

    #[test]
    fn inputs_are_those_of_the_kit() {
        for (workload, input) in [
            ("B1", Some("u10k")),
            ("W1", Some("u10k")),
            ("W3.cache", Some("u10k")),
            ("W3.nocache", Some("m10k")),
            ("W3.nocache.2t", Some("m10k")),
            ("W3.nocache.long", Some("x10k")),
            ("W3.1m.cache", Some("u1m")),
            ("W3.zipf.nocache", Some("z1m")),
            ("W4.nocache", Some("u10k")),
            ("W5.cache", Some("m10k")),
            ("W6.nocache", Some("w1m")),
            ("W9.cache", Some("m10k")),
            ("W10.nocache", Some("m10k")),
            ("W10.1m.nocache", Some("u1m")),
            ("W11.cache", Some("w1m")),
            ("R1", Some("u1m")),
            ("E.W2.linger0", None),
        ] {
            assert_eq!(input_of(workload), input, "{workload}");
        }
        assert_eq!(inputs_of("W8"), ["left", "right"]);
        assert_eq!(inputs_of("W12"), ["fkl", "fkr"]);
        assert_eq!(inputs_of("W3.cache"), ["u10k"]);
    }

    #[test]
    fn options_are_in_the_names() {
        assert_eq!(program_of("W3.cache"), Some(("W3", vec![])));
        let options = vec!["--cache-bytes", "0", "--threads", "2"];
        assert_eq!(program_of("W3.nocache.2t"), Some(("W3", options)));
        let options =
            vec!["--guarantee", "exactly_once_v2", "--commit-ms", "100", "--cache-bytes", "0"];
        assert_eq!(program_of("W10.nocache"), Some(("W10", options)));
        assert_eq!(program_of("W8"), Some(("W8", vec![])));
        assert_eq!(program_of("W12"), Some(("W12", vec![])));
        assert_eq!(program_of("W13"), None);
        assert_eq!(program_of("F1.standby0"), None);
        assert_eq!(program_of("W3.unknown"), None);
    }
}
