use std::collections::BTreeMap;
use std::path::Path;

use super::{MemoryBackend, MemoryContents};
use crate::{MetaUpdate, OpenOptions, StoreBackend, WriteBatch};

crate::contract_suite!(volatile, MemoryBackend::new());

crate::contract_suite!(durable, MemoryBackend::durable(), kill = MemoryBackend::lose_unsynced,);

#[test]
fn what_a_storage_holds_can_be_looked_at_and_removed() {
    let backend = MemoryBackend::durable();
    let dir = Path::new("task");
    assert_eq!(backend.look(dir), None);
    let mut storage = backend.open(dir, &OpenOptions::default()).unwrap();
    let space = storage.space("counts").unwrap();
    let mut batch = WriteBatch::new();
    batch.push(space, b"b", Some(b"2"));
    batch.push(space, b"a", Some(b"1"));
    let meta = MetaUpdate { key: b"at".to_vec(), value: Some(b"7".to_vec()) };
    storage.apply(batch.sort(), &[meta]).unwrap();
    let entries = vec![(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())];
    let expected = MemoryContents {
        stores: BTreeMap::from([("counts".to_owned(), entries)]),
        meta: vec![(b"at".to_vec(), b"7".to_vec())],
    };
    assert_eq!(backend.look(dir), Some(expected));
    backend.remove(dir);
    assert_eq!(backend.look(dir), None);
}
