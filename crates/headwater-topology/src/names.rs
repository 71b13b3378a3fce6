//! Names as Kafka Streams gives and accepts them.

use crate::error::TopologyError;

const MAX_NAME_LENGTH: usize = 249;

/// The counter behind generated names: one per builder, shared by nodes and stores (feature rows
/// D11, D12). An operator that takes a number takes it whether or not the user has named it, so that
/// naming one node does not rename the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameCounter {
    next: u32,
}

impl NameCounter {
    /// A counter at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next name of a node: the prefix and ten digits, as `KSTREAM-FILTER-0000000003`.
    pub fn processor_name(&mut self, prefix: &str) -> String {
        let number = self.take();
        format!("{prefix}{number:010}")
    }

    /// The next name of a store: as `KSTREAM-AGGREGATE-STATE-STORE-0000000003`.
    pub fn store_name(&mut self, prefix: &str) -> String {
        let number = self.take();
        format!("{prefix}STATE-STORE-{number:010}")
    }

    /// The number that the next name gets.
    pub fn peek(&self) -> u32 {
        self.next
    }

    fn take(&mut self) -> u32 {
        let number = self.next;
        self.next += 1;
        number
    }
}

/// Checks a name given by the user: not empty, neither `.` nor `..`, at most 249 characters (UTF-16
/// units, as Java counts), and only ASCII letters, digits, `.`, `_` and `-` (feature row D13).
///
/// # Errors
/// Which of these does not hold, with the original's text.
pub fn validate_name(name: &str) -> Result<(), TopologyError> {
    if name.is_empty() {
        return Err(TopologyError::EmptyName);
    }
    let name = name.to_owned();
    if name == "." || name == ".." {
        return Err(TopologyError::DotName { name });
    }
    if name.encode_utf16().count() > MAX_NAME_LENGTH {
        return Err(TopologyError::LongName { name });
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
        return Err(TopologyError::IllegalName { name });
    }
    Ok(())
}
