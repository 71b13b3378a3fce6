//! Where the cases print to.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// What was printed under a label.
#[derive(Clone, Default)]
pub(super) struct Page {
    text: Arc<Mutex<Vec<u8>>>,
}

impl Page {
    pub(super) fn text(&self) -> String {
        let bytes = self.text.lock().expect("nobody panics while printing").clone();
        String::from_utf8(bytes).expect("text was printed")
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.lock().expect("nobody panics while printing").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
