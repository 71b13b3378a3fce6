//! The contract that every backend keeps.

use headwater_store_sled::SledBackend;

headwater_store::contract_suite!(sled, SledBackend::new());
