// SPDX-License-Identifier: GPL-2.0-only
//! Threads that serve a VM (emulator, I/O threads): what the dispatcher is told about them, as the daemon tells it on a
//! real host (crates/linux/src/helpers.rs).

use super::{Dispatcher, Kind};
use corun_dispatcher::TaskConf;
use corun_model::VmId;

/// A VM's tasks, by their places in the dispatcher's table.
#[derive(Clone, Debug, Default)]
struct Members {
    vcpus: Vec<usize>,
    helpers: Vec<usize>,
}

/// Which tasks serve which VM.
#[derive(Clone, Debug, Default)]
pub(super) struct Helpers(Vec<Members>);

impl Helpers {
    /// A task that is a vCPU of one VM, or serves one, or neither.
    pub(super) fn add(&mut self, task: usize, vcpu_of: Option<VmId>, helper_of: Option<VmId>) {
        let Some(vm) = vcpu_of.or(helper_of) else {
            return;
        };
        if self.0.len() <= vm.index() {
            self.0.resize_with(vm.index() + 1, Members::default);
        }
        let members = &mut self.0[vm.index()];
        match vcpu_of {
            Some(_) => members.vcpus.push(task),
            None => members.helpers.push(task),
        }
    }
}

impl<K: Kind> Dispatcher<K> {
    /// Tells the dispatcher what follows for helpers from what it was told about their VMs.
    pub(super) fn tell_helpers(&mut self) {
        for (members, plan) in self.helpers.0.iter().zip(&self.plans) {
            if members.helpers.is_empty() {
                continue;
            }
            let vcpus = members
                .vcpus
                .iter()
                .map(|&vcpu| self.native.peek(vcpu).conf);
            let wanted = TaskConf::of_helper(plan.placement.number(), vcpus);
            for &helper in &members.helpers {
                self.native.task(helper).conf = wanted;
            }
        }
    }
}
