//! The login modules of `sasl.jaas.config`, in the syntax of Java's login configuration.

use std::collections::BTreeMap;

use headwater_broker::Secret;

/// One login module with its options.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LoginModule {
    /// Its class, without package.
    pub(super) class: String,
    pub(super) options: BTreeMap<String, Secret>,
}

/// Reads `class flag name="value" ...;`.
///
/// # Errors
/// What is wrong; never what was read, which may be a password.
pub(super) fn parse(text: &str) -> Result<LoginModule, &'static str> {
    let mut words = words(text)?.into_iter();
    let mut word = |missing| match words.next() {
        Some(Word::Text(text)) => Ok(text),
        _ => Err(missing),
    };
    let class = word("it does not begin with the class of a login module")?;
    let flag = word("a control flag such as `required` is missing after the class")?;
    if !["required", "requisite", "sufficient", "optional"]
        .contains(&flag.to_ascii_lowercase().as_str())
    {
        return Err(
            "the word after the class is none of required, requisite, sufficient, optional",
        );
    }
    let mut options = BTreeMap::new();
    loop {
        match words.next() {
            Some(Word::Text(name)) => {
                let (Some(Word::Equals), Some(Word::Text(value))) = (words.next(), words.next())
                else {
                    return Err("an option is not written as name=\"value\"");
                };
                options.insert(name, Secret::new(value));
            }
            Some(Word::End) => break,
            Some(Word::Equals) => return Err("a `=` has no name before it"),
            None => return Err("the `;` at its end is missing"),
        }
    }
    if words.next().is_some() {
        return Err("it has more than one login module");
    }
    let class = class.rsplit('.').next().unwrap_or_default().to_owned();
    Ok(LoginModule { class, options })
}

enum Word {
    Text(String),
    Equals,
    End,
}

fn words(text: &str) -> Result<Vec<Word>, &'static str> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            _ if c.is_whitespace() => {}
            '=' => words.push(Word::Equals),
            ';' => words.push(Word::End),
            '"' | '\'' => words.push(Word::Text(quoted(&mut chars, c)?)),
            _ => {
                let mut plain = c.to_string();
                while let Some(next) =
                    chars.next_if(|&next| !next.is_whitespace() && !"=;\"'".contains(next))
                {
                    plain.push(next);
                }
                words.push(Word::Text(plain));
            }
        }
    }
    Ok(words)
}

fn quoted(chars: &mut impl Iterator<Item = char>, end: char) -> Result<String, &'static str> {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        match c {
            _ if c == end => return Ok(text),
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some(other) => text.push(other),
                None => break,
            },
            _ => text.push(c),
        }
    }
    Err("a quotation mark is not closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, class: &str, options: &[(&str, &str)]) {
        let module = parse(text).unwrap();
        let read: Vec<_> =
            module.options.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!((module.class.as_str(), read.as_slice()), (class, options), "{text}");
    }

    #[test]
    fn modules_as_kafka_documents_them() {
        check(
            "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"alice\" \
             password=\"alice-secret\";",
            "ScramLoginModule",
            &[("password", "alice-secret"), ("username", "alice")],
        );
        check(
            "a.PlainLoginModule Required\n\tusername=alice password='x y' ;",
            "PlainLoginModule",
            &[("password", "x y"), ("username", "alice")],
        );
        check("OAuthBearerLoginModule required ;", "OAuthBearerLoginModule", &[]);
        check(r#"M required p="a\"b\\c;=";"#, "M", &[("p", "a\"b\\c;=")]);
    }

    #[test]
    fn what_is_wrong_is_said_without_what_was_read() {
        for (text, expected) in [
            ("", "it does not begin with the class of a login module"),
            ("M", "a control flag such as `required` is missing after the class"),
            (
                "M secret a=b;",
                "the word after the class is none of required, requisite, sufficient, optional",
            ),
            ("M required a=b", "the `;` at its end is missing"),
            ("M required a b;", "an option is not written as name=\"value\""),
            ("M required =b;", "a `=` has no name before it"),
            ("M required a=\"b;", "a quotation mark is not closed"),
            ("M required a=b; N required;", "it has more than one login module"),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        }
    }
}
