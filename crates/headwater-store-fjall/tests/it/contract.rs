//! The contract that every backend keeps.

use headwater_store_fjall::FjallBackend;

headwater_store::contract_suite!(fjall, FjallBackend::new());
