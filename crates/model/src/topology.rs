// SPDX-License-Identifier: GPL-2.0-only
//! What a host is made of: NUMA nodes, last-level-cache domains, cores and their SMT threads.
//!
//! The short notation `1n2l4c2t` reads: 1 node, 2 LLC domains per node, 4 cores per LLC, 2 SMT
//! threads per core. pCPUs are numbered thread-innermost: a core's SMT siblings are neighbours.

use crate::PcpuId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A regular host. All counts are at least 1 and their product at most [`Topology::MAX_PCPUS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Topology {
    nodes: u32,
    llcs_per_node: u32,
    cores_per_llc: u32,
    threads_per_core: u32,
}

/// Why a text is not a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Not of the form NnLlCcTt.
    #[error("{0:?} is not a topology: expected <nodes>n<llcs>l<cores>c<threads>t such as 1n2l4c2t")]
    Form(String),
    /// A zero somewhere.
    #[error("{0:?}: every count must be at least 1")]
    Zero(String),
    /// More pCPUs than corun handles.
    #[error("{0:?} has more than {max} pCPUs", max = Topology::MAX_PCPUS)]
    TooLarge(String),
}

impl Topology {
    /// The most pCPUs a host may have; the dispatcher's tables have this size.
    pub const MAX_PCPUS: u32 = 512;

    /// A host with `cores` cores of one thread each, in one LLC domain.
    ///
    /// # Errors
    /// [`TopologyError`] if `cores` is 0 or above [`Self::MAX_PCPUS`].
    pub fn flat(cores: u32) -> Result<Self, TopologyError> {
        format!("1n1l{cores}c1t").parse()
    }

    /// Number of pCPUs.
    pub fn pcpus(&self) -> u32 {
        self.nodes * self.llcs_per_node * self.cores_per_llc * self.threads_per_core
    }

    /// SMT threads per core.
    pub fn threads_per_core(&self) -> u32 {
        self.threads_per_core
    }

    /// Cores of an LLC domain.
    pub fn cores_per_llc(&self) -> u32 {
        self.cores_per_llc
    }

    /// All pCPUs in order.
    pub fn all(&self) -> impl Iterator<Item = PcpuId> + use<> {
        (0..self.pcpus()).map(PcpuId)
    }

    /// The core of a pCPU, counted over the whole host.
    pub fn core(&self, cpu: PcpuId) -> u32 {
        cpu.0 / self.threads_per_core
    }

    /// The LLC domain of a pCPU, counted over the whole host.
    pub fn llc(&self, cpu: PcpuId) -> u32 {
        self.core(cpu) / self.cores_per_llc
    }

    /// The NUMA node of a pCPU.
    pub fn node(&self, cpu: PcpuId) -> u32 {
        self.llc(cpu) / self.llcs_per_node
    }
}

impl FromStr for Topology {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, TopologyError> {
        let form = || TopologyError::Form(text.to_string());
        let mut rest = text;
        let mut counts = [0u32; 4];
        for (count, letter) in counts.iter_mut().zip(['n', 'l', 'c', 't']) {
            let (number, after) = rest.split_once(letter).ok_or_else(form)?;
            if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
                return Err(form());
            }
            *count = number
                .parse()
                .map_err(|_| TopologyError::TooLarge(text.to_string()))?;
            rest = after;
        }
        if !rest.is_empty() {
            return Err(form());
        }
        if counts.contains(&0) {
            return Err(TopologyError::Zero(text.to_string()));
        }
        let total = counts
            .iter()
            .try_fold(1u32, |product, &n| product.checked_mul(n));
        match total {
            Some(total) if total <= Self::MAX_PCPUS => Ok(Self {
                nodes: counts[0],
                llcs_per_node: counts[1],
                cores_per_llc: counts[2],
                threads_per_core: counts[3],
            }),
            _ => Err(TopologyError::TooLarge(text.to_string())),
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}n{}l{}c{}t",
            self.nodes, self.llcs_per_node, self.cores_per_llc, self.threads_per_core
        )
    }
}

impl TryFrom<String> for Topology {
    type Error = TopologyError;
    fn try_from(text: String) -> Result<Self, TopologyError> {
        text.parse()
    }
}

impl From<Topology> for String {
    fn from(topology: Topology) -> Self {
        topology.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn notation_round_trips() {
        let topology: Topology = "1n2l4c2t".parse().unwrap();
        assert_eq!(topology.pcpus(), 16);
        assert_eq!(topology.to_string(), "1n2l4c2t");
        assert_eq!(topology.core(PcpuId(9)), 4);
        assert_eq!(topology.llc(PcpuId(9)), 1);
        assert_eq!(topology.node(PcpuId(9)), 0);
    }

    #[test]
    fn impossible_hosts_are_refused() {
        let parse = |text: &str| text.parse::<Topology>();
        assert!(matches!(parse("4"), Err(TopologyError::Form(_))));
        assert!(matches!(parse("1n1l4c2tx"), Err(TopologyError::Form(_))));
        assert!(matches!(parse("1n0l4c2t"), Err(TopologyError::Zero(_))));
        assert!(matches!(
            parse("9n9l99c2t"),
            Err(TopologyError::TooLarge(_))
        ));
        assert!(matches!(
            parse("1n1l99999999999c1t"),
            Err(TopologyError::TooLarge(_))
        ));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,24}") {
            let _ = text.parse::<Topology>();
        }
    }
}
