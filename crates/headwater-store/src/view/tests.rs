use std::path::Path;

use super::*;
use crate::serde::{Long, Utf8};
use crate::{
    MemoryBackend, MetaUpdate, OpenOptions, Overlay, OverlayOptions, StoreBackend, WriteBatch,
};

type Counts = TimestampedKeyValueStore<String, i64, Overlay, Utf8, Long>;

fn storage() -> Box<dyn TaskStorage> {
    MemoryBackend::new().open(Path::new("0_0"), &OpenOptions::default()).expect("memory opens")
}

fn counts(storage: &mut dyn TaskStorage) -> Counts {
    let space = storage.space("counts").expect("there is room");
    let overlay = Overlay::new("counts", space, storage.reader(), OverlayOptions::default());
    KeyValueStore::new(overlay, Utf8, Timestamped(Long))
}

fn at(timestamp: i64, value: i64) -> ValueAndTimestamp<i64> {
    ValueAndTimestamp { value, timestamp }
}

fn described(layout: Layout, key_format: &str, value_format: &str) -> MetaUpdate {
    let (key_format, value_format) = (key_format.to_owned(), value_format.to_owned());
    StoreDescription { layout, key_format, value_format }.update("counts")
}

#[test]
fn a_typed_store_reads_what_it_wrote() {
    let mut storage = storage();
    let mut counts = counts(&mut *storage);
    assert_eq!(counts.put_if_absent(&"a".to_owned(), &at(1, 10)).unwrap(), None);
    assert_eq!(counts.put_if_absent(&"a".to_owned(), &at(2, 20)).unwrap(), Some(at(1, 10)));
    counts.put(&"ab".to_owned(), Some(&at(3, 30))).unwrap();
    counts.put(&"b".to_owned(), Some(&at(4, 40))).unwrap();
    assert_eq!(counts.get("ab").unwrap(), Some(at(3, 30)));

    let keys = |entries: Entries<'_, String, _, _, _, _>| -> Vec<String> {
        entries.map(|entry| entry.map(|(key, _)| key)).collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(keys(counts.all().unwrap()), ["a", "ab", "b"]);
    assert_eq!(keys(counts.reverse_all().unwrap()), ["b", "ab", "a"]);
    assert_eq!(keys(counts.range(Some(&"ab".to_owned()), None).unwrap()), ["ab", "b"]);
    assert_eq!(keys(counts.reverse_range(None, Some(&"ab".to_owned())).unwrap()), ["ab", "a"]);
    assert_eq!(keys(counts.prefix_scan("a", &Utf8).unwrap()), ["a", "ab"]);

    assert_eq!(counts.delete(&"a".to_owned()).unwrap(), Some(at(1, 10)));
    assert_eq!(counts.delete(&"a".to_owned()).unwrap(), None);
    assert_eq!(keys(counts.all().unwrap()), ["ab", "b"]);
}

#[test]
fn a_store_is_opened_from_outside_only_as_what_it_is() {
    let mut storage = storage();
    let dir = Path::new("0_0");
    let space = storage.space("counts").unwrap();
    let mut batch = WriteBatch::new();
    let mut value = 7_i64.to_be_bytes().to_vec();
    value.extend_from_slice(&42_i64.to_be_bytes());
    batch.push(space, b"word", Some(&value));
    let meta = [described(Layout::TimestampedKeyValue, "utf8", "long")];
    storage.apply(batch.sort(), &meta).unwrap();

    let mut counts: TimestampedKeyValueStore<String, i64, _, _, _> =
        open_timestamped_key_value(&*storage, dir, "counts", Utf8, Long).unwrap();
    assert_eq!(counts.get("word").unwrap(), Some(at(7, 42)));

    let plain = open_key_value::<String, i64, _, _>(&*storage, dir, "counts", Utf8, Long);
    assert_eq!(
        plain.unwrap_err().to_string(),
        "store counts holds timestamped-key-value<utf8, long>, not key-value<utf8, long>; \
         open it with the types it was made with"
    );
    let text =
        open_timestamped_key_value::<String, String, _, _>(&*storage, dir, "counts", Utf8, Utf8);
    assert!(matches!(text.unwrap_err(), StoreError::WrongType { .. }));
    let absent = open_key_value::<String, i64, _, _>(&*storage, dir, "sums", Utf8, Long);
    assert!(matches!(absent.unwrap_err(), StoreError::NoSuchStore { .. }));
}

#[test]
fn a_value_of_another_type_is_an_error_that_names_the_store() {
    let mut storage = storage();
    let space = storage.space("counts").unwrap();
    let mut batch = WriteBatch::new();
    batch.push(space, b"word", Some(b"four"));
    storage.apply(batch.sort(), &[]).unwrap();
    let access = CommittedStore::new("counts", space, storage.reader());
    let mut counts: KeyValueStore<String, i64, _, _, _> = KeyValueStore::new(access, Utf8, Long);
    let error = counts.get("word").unwrap_err();
    assert_eq!(error.to_string(), "store counts: value does not fit the serde");
    let StoreError::Serde { source, .. } = error else { panic!("not a serde error") };
    assert_eq!(source.to_string(), "long has 8 bytes, found 4");
}
