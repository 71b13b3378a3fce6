//! Calls of user functions that the cases note.

use std::sync::{Arc, Mutex};

use super::value::{Value, text};

/// Label, key and value of a call, as text.
type Note = (String, String, String);

/// The calls since they were taken last.
#[derive(Clone, Default)]
pub(super) struct Notes {
    calls: Arc<Mutex<Vec<Note>>>,
}

impl Notes {
    pub(super) fn add(&self, label: &str, key: Option<&Value>, value: Option<&Value>) {
        let note = (label.to_owned(), text(key), text(value));
        self.calls.lock().expect("nobody panics while noting").push(note);
    }

    pub(super) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.calls.lock().expect("nobody panics while noting"))
    }
}
