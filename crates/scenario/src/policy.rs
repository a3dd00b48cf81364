// SPDX-License-Identifier: GPL-2.0-only
//! `[policy.NAME]`: what corun's policies are told.

use crate::jupiter::{self, JupiterKeys};
use crate::reader::Reader;
use crate::slices::{self, AqlKeys, SliceKeys};
use crate::vsmtio::{self, VsmtIoKeys};
use corun_model::time::{MS, SEC, US};
use corun_model::{Nanos, Skew, time};

/// `[policy]`: what is said of each policy that has settings.
#[derive(Clone, Debug, Default)]
pub struct PolicyKeys {
    /// `[policy.balance-load]`.
    pub balance_load: LightKeys,
    /// `[policy.cosched-strict]`.
    pub cosched_strict: SlotKeys,
    /// `[policy.cosched-demand]`.
    pub cosched_demand: DemandKeys,
    /// `[policy.cosched-relaxed]`.
    pub cosched_relaxed: SkewKeys,
    /// `[policy.cosched-relaxed-all]`.
    pub cosched_relaxed_all: SkewKeys,
    /// `[policy.jupiter]`.
    pub jupiter: JupiterKeys,
    /// `[policy.aql]`.
    pub aql: AqlKeys,
    /// `[policy.vsmtio]`.
    pub vsmtio: VsmtIoKeys,
    /// `[policy.vslicer]`.
    pub vslicer: SliceKeys,
    /// `[policy.vturbo]`.
    pub vturbo: SliceKeys,
    /// `[policy.microsliced]`.
    pub microsliced: SliceKeys,
}

/// Load-conscious placement.
#[derive(Clone, Copy, Debug, Default)]
pub struct LightKeys {
    /// Up to which load a pCPU is light, percent of the mean.
    pub light: Option<u32>,
}

/// Time slots.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotKeys {
    /// Their length.
    pub slot: Option<Nanos>,
    /// May others run where an owner leaves pCPUs idle?
    pub fill: Option<bool>,
}

/// `[policy.cosched-demand]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DemandKeys {
    /// Up to which load a pCPU is light, percent of the mean.
    pub light: Option<u32>,
    /// Urgent time of who is woken by a sibling.
    pub wake_boost: Option<Nanos>,
    /// Are TLB shootdowns seen?
    pub sees_flushes: Option<bool>,
    /// Urgent time of who shall flush its TLB.
    pub flush_boost: Option<Nanos>,
    /// Most urgent time that adds up.
    pub boost_limit: Option<Nanos>,
    /// How far ahead an urgent vCPU may run.
    pub boost_lead: Option<Nanos>,
}

/// Leads over siblings.
#[derive(Clone, Copy, Debug, Default)]
pub struct SkewKeys {
    /// At which a vCPU is stopped.
    pub stop: Option<Nanos>,
    /// Below which it goes on.
    pub resume: Option<Nanos>,
    /// How often they are looked at.
    pub sample: Option<Nanos>,
}

pub(crate) fn policies(table: Option<Reader<'_>>) -> PolicyKeys {
    let Some(table) = table else {
        return PolicyKeys::default();
    };
    let keys = PolicyKeys {
        balance_load: table.table("balance-load").map(light).unwrap_or_default(),
        cosched_strict: table.table("cosched-strict").map(slots).unwrap_or_default(),
        cosched_demand: table
            .table("cosched-demand")
            .map(demand)
            .unwrap_or_default(),
        cosched_relaxed: table.table("cosched-relaxed").map(skew).unwrap_or_default(),
        cosched_relaxed_all: (table.table("cosched-relaxed-all"))
            .map(skew)
            .unwrap_or_default(),
        jupiter: table
            .table("jupiter")
            .map(jupiter::keys)
            .unwrap_or_default(),
        aql: table.table("aql").map(slices::aql).unwrap_or_default(),
        vsmtio: table.table("vsmtio").map(vsmtio::keys).unwrap_or_default(),
        vslicer: table
            .table("vslicer")
            .map(slices::vslicer)
            .unwrap_or_default(),
        vturbo: table
            .table("vturbo")
            .map(slices::vturbo)
            .unwrap_or_default(),
        microsliced: table
            .table("microsliced")
            .map(slices::microsliced)
            .unwrap_or_default(),
    };
    table.finish();
    keys
}

fn light(table: Reader<'_>) -> LightKeys {
    let keys = LightKeys {
        light: table.whole("light", 100..=1000),
    };
    table.finish();
    keys
}

fn slots(table: Reader<'_>) -> SlotKeys {
    let keys = SlotKeys {
        slot: table.duration("slot", MS..=SEC),
        fill: table.flag("fill"),
    };
    table.finish();
    keys
}

fn demand(table: Reader<'_>) -> DemandKeys {
    let keys = DemandKeys {
        light: table.whole("light", 100..=1000),
        wake_boost: table.duration("wake_boost", 0..=100 * MS),
        sees_flushes: table.flag("sees_flushes"),
        flush_boost: table.duration("flush_boost", 0..=100 * MS),
        boost_limit: table.duration("boost_limit", 0..=100 * MS),
        boost_lead: table.duration("boost_lead", 0..=SEC),
    };
    table.finish();
    keys
}

fn skew(table: Reader<'_>) -> SkewKeys {
    let keys = SkewKeys {
        stop: table.duration("stop", 100 * US..=SEC),
        resume: table.duration("resume", 100 * US..=SEC),
        sample: table.duration("sample", 100 * US..=100 * MS),
    };
    let default = Skew::default();
    let stop = keys.stop.unwrap_or(default.stop);
    let resume = keys.resume.unwrap_or(default.resume);
    if resume > stop {
        let key = if keys.resume.is_some() {
            "resume"
        } else {
            "stop"
        };
        table.problem(
            key,
            format!(
                "found resume {} and stop {}, expected resume to be no more than stop",
                time::show(resume),
                time::show(stop)
            ),
        );
    }
    table.finish();
    keys
}
