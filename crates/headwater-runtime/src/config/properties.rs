//! The syntax of Java's `.properties` files, as `java.util.Properties.load` reads it.

use std::iter::Peekable;
use std::str::Chars;

use super::ConfigError;

/// One key with its value, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Property {
    /// Number of the line on which it begins, from 1.
    pub(crate) line: usize,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Reads all properties of a file.
pub(crate) fn parse(text: &str) -> Result<Vec<Property>, ConfigError> {
    logical_lines(text)
        .into_iter()
        .map(|(line, logical)| {
            let (key, value) = split(&logical);
            Ok(Property { line, key: unescape(key, line)?, value: unescape(value, line)? })
        })
        .collect()
}

/// Joins continued lines and drops blank ones and comments. Comments cannot be continued.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = natural_lines(text).enumerate();
    let mut logical = Vec::new();
    while let Some((index, first)) = lines.next() {
        let first = first.trim_start_matches(is_blank);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut joined = first.to_owned();
        while ends_with_open_backslash(&joined) {
            joined.pop();
            let Some((_, next)) = lines.next() else { break };
            joined.push_str(next.trim_start_matches(is_blank));
        }
        if !joined.is_empty() {
            logical.push((index + 1, joined));
        }
    }
    logical
}

/// Lines end with `\n`, `\r` or both.
fn natural_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

fn ends_with_open_backslash(line: &str) -> bool {
    line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// Cuts at the first unescaped `=`, `:` or blank; blanks around one `=` or `:` belong to neither.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line
        .char_indices()
        .find(|&(_, c)| {
            let ends = !escaped && (is_blank(c) || c == '=' || c == ':');
            escaped = c == '\\' && !escaped;
            ends
        })
        .map_or(line.len(), |(index, _)| index);
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start_matches(is_blank);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, rest.trim_start_matches(is_blank))
}

fn unescape(text: &str, line: usize) -> Result<String, ConfigError> {
    let mut units = Vec::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut buffer = [0; 2];
    while let Some(c) = chars.next() {
        let plain = match c {
            '\\' => match chars.next() {
                None => continue,
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    let bad = || ConfigError::PropertiesEscape { line };
                    units.push(code_unit(&mut chars).ok_or_else(bad)?);
                    continue;
                }
                Some(other) => other,
            },
            other => other,
        };
        units.extend_from_slice(plain.encode_utf16(&mut buffer));
    }
    String::from_utf16(&units).map_err(|_| ConfigError::PropertiesEscape { line })
}

/// The four hexadecimal digits after `\u`: a UTF-16 code unit.
fn code_unit(chars: &mut Peekable<Chars<'_>>) -> Option<u16> {
    (0..4).try_fold(0, |unit: u16, _| {
        let digit = chars.next()?.to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(usize, &str, &str)]) {
        let read = parse(text).unwrap();
        let read: Vec<(usize, &str, &str)> = read
            .iter()
            .map(|property| (property.line, property.key.as_str(), property.value.as_str()))
            .collect();
        assert_eq!(read, expected, "{text:?}");
    }

    #[test]
    fn separators_and_blanks() {
        check("a=1", &[(1, "a", "1")]);
        check(
            "a:1\nb 2\rc\t3\r\nd\u{c}= 4",
            &[(1, "a", "1"), (2, "b", "2"), (3, "c", "3"), (4, "d", "4")],
        );
        check("  a  =  b = c  ", &[(1, "a", "b = c  ")]);
        check("a == b", &[(1, "a", "= b")]);
        check("key.without.value", &[(1, "key.without.value", "")]);
        check("=value without key", &[(1, "", "value without key")]);
    }

    #[test]
    fn comments_and_blank_lines() {
        check("# a=1\n ! b=2 \\\n\n \t\nc=3 # no comment", &[(5, "c", "3 # no comment")]);
    }

    #[test]
    fn continued_lines() {
        check(
            "servers=one,\\\n    two,\\\n\tthree\nnext=1",
            &[(1, "servers", "one,two,three"), (4, "next", "1")],
        );
        check("path=c:\\\\\nnext=1", &[(1, "path", "c:\\"), (2, "next", "1")]);
        check("a=1\\\n# not a comment", &[(1, "a", "1# not a comment")]);
        check("a=1\\", &[(1, "a", "1")]);
    }

    #[test]
    fn escapes() {
        check("a\\ b\\:c\\=d=\\ e\\tf\\qg", &[(1, "a b:c=d", " e\tfqg")]);
        check("a=\\u00e4\\uD83D\\uDE00", &[(1, "a", "ä😀")]);
    }

    #[test]
    fn broken_escapes_are_named() {
        for text in ["a=\\u12", "a=\\u12g4", "x=1\na=\\ud83d!"] {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, ConfigError::PropertiesEscape { .. }), "{text:?}: {error}");
        }
    }
}
