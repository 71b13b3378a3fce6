//! Free ports that stay free while a node is down.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::NodesError;

/// Where the search begins; below it are ports of common servers.
const LOWEST: u16 = 20_000;
/// Where Linux begins to give out ports for outgoing connections unless it says otherwise.
const EPHEMERAL: u16 = 32_768;

/// So many ports of 127.0.0.1 that nobody listens on.
///
/// They lie below the range that the operating system takes ports of outgoing connections from.
/// In that range a node that is down for a moment could lose its port to a client, and a client
/// that connects to a port nobody listens on could even reach itself.
///
/// # Errors
/// [`NodesError::NoFreePort`].
pub fn free_ports(count: usize) -> Result<Vec<u16>, NodesError> {
    let end = first_ephemeral().max(LOWEST + 1_000);
    let mut held = Vec::with_capacity(count);
    for _ in LOWEST..end {
        if held.len() == count {
            break;
        }
        // Held until all are found, so that none is found twice.
        held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, next_candidate(end))));
    }
    if held.len() < count {
        return Err(NodesError::NoFreePort { from: LOWEST, to: end - 1 });
    }
    let ports = held.iter().filter_map(|listener| listener.local_addr().ok());
    Ok(ports.map(|address| address.port()).collect())
}

/// Processes begin at different places, and no port comes twice soon.
fn next_candidate(end: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let step = NEXT.fetch_add(1, Ordering::Relaxed);
    let span = u32::from(end - LOWEST);
    let start = std::process::id().wrapping_mul(7_919);
    let offset = start.wrapping_add(u32::from(step)) % span;
    LOWEST + u16::try_from(offset).unwrap_or_default()
}

fn first_ephemeral() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
    first.unwrap_or(EPHEMERAL)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{first_ephemeral, free_ports};

    #[test]
    fn ports_differ_and_are_not_ephemeral() {
        let ports = free_ports(20).unwrap();
        let different: BTreeSet<u16> = ports.iter().copied().collect();
        assert_eq!(different.len(), 20);
        assert!(ports.iter().all(|port| *port < first_ephemeral().max(21_000)), "{ports:?}");
    }
}
