use super::MemoryBackend;

crate::contract_suite!(volatile, MemoryBackend::new());

crate::contract_suite!(durable, MemoryBackend::durable(), kill = MemoryBackend::lose_unsynced,);
