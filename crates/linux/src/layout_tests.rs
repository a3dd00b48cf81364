// SPDX-License-Identifier: GPL-2.0-only
//! Compares the structs that `corun_dispatcher` writes in Rust with those that the BPF compiler laid out, as its BTF
//! shows: field by field, by name, place and size. (`corun_dispatcher`'s own test compares them with the native
//! compilers' by size only, which would miss two fields of one type that have changed places.)

use crate::skel::types;
use corun_dispatcher::{
    CpuCtx, GangCtx, GangVcpu, GroupConf, GroupCtx, HoldCounters, Knobs, PcpuConf, PoolConf,
    TaskConf, TaskCounters, TaskCtx, VmConf, VmCtx,
};
use std::mem::offset_of;

/// How long a field is.
fn length<Of, Field>(_: fn(&Of) -> &Field) -> usize {
    size_of::<Field>()
}

/// All fields of the struct must be named, or its pattern is not complete; and C's must have the same fields.
macro_rules! same {
    ($ours:ident = $c:ident: $($field:ident)*) => {
        let _: fn(&$ours) = |it| { let $ours { $($field: _),* } = it; };
        let _: fn(&types::$c) = |it| { let types::$c { $($field: _),* } = it; };
        $(
            let name = concat!(stringify!($c), ".", stringify!($field));
            let ours = (offset_of!($ours, $field), length(|it: &$ours| &it.$field));
            let c = (offset_of!(types::$c, $field), length(|it: &types::$c| &it.$field));
            assert_eq!(ours, c, "{name}: (place, length)");
        )*
        assert_eq!(size_of::<$ours>(), size_of::<types::$c>(), stringify!($c));
    };
}

#[test]
fn what_the_kernel_knows_is_laid_out_alike() {
    same! { TaskCtx = task_ctx:
        vtime since charged seq sum state vm active_weight cpu last_cpu clock_cpu woken
        queued fresh load urgent urgent_at urgent_from member share home claims over gran
        allot_end allot_run woken_at wakers held_since held_until reserved group
        group_weight parked_for rest hold_no released awaited
        parked_active parked_weight due parked_since parked_clock group_sum
        beyond
    }
    same! { TaskCounters = task_counters:
        run ready wait switches wakeups migrations depleted preempted late held kept
        throttled
    }
    same! { VmCtx = vm_ctx:
        id vcpus active_weight llc pad here r#where
    }
    same! { GangCtx = gang_ctx:
        until stopped leader epoch members turn target vcpu
    }
    same! { GangVcpu = gang_vcpu:
        behind since stopped costop id pad
    }
    same! { CpuCtx = cpu_ctx:
        vnow cur_vtime cur_since cur_rate slice_end balanced_at rescued_at offered_at
        switches idle nr load incoming incoming_vm incoming_load cur_vm cur_member owner
        held_until hold_ends held hold_no cur_is cur_demand called runs brief cur_limited
        cut behind busier_by turn_vtime release_at timer_at favoured tick favour_end held_since
        holds cur_cookie ceded unknown offer_due grace_end put_off
    }
    same! { HoldCounters = hold_counters:
        begun woke expired gave_way length longest latest
    }
    same! { GroupCtx = group_ctx:
        own below left reserved period_end freed_at members counted changed sum
    }
}

#[test]
fn what_it_is_told_is_laid_out_alike() {
    same! { TaskConf = task_conf:
        slice home share latency allotment pool demand dormant cookie micro pad
    }
    same! { VmConf = vm_conf:
        id placement weight light gang fill slot stop resume sample wake_boost flush_boost
        boost_limit boost_lead period neutral pcpus
    }
    same! { PcpuConf = pcpu_conf:
        hold partner wait_wait miss_miss gives_way cookies pad
    }
    same! { PoolConf = pool_conf:
        slice pcpus
    }
    same! { GroupConf = group_conf:
        quota period burst weight parent limited pad
    }
    same! { Knobs = knobs:
        slice wakeup_gran sleeper_credit max_lead balance_interval online pcpus placement
        slice_timer groups gangs cores tasks micro llcs online_pcpus pad sibling llc
    }
}
